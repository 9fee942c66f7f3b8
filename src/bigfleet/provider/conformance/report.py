"""The verdict and the three files of a run: report.json, junit.xml, badge.json, in the documented shapes.

Fields beyond the documented ones are additive: why a behaviour was skipped, and for a failure the calls and the rule.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from bigfleet.provider.conformance.config import Config
from bigfleet.provider.conformance.runner import is_required
from bigfleet.provider.conformance.verdicts import Result, SkipKind, Status

CERTIFIED, FAILED, INCOMPLETE = "CERTIFIED", "FAILED", "INCOMPLETE"
_COLOURS = {CERTIFIED: "brightgreen", FAILED: "red", INCOMPLETE: "yellow"}
_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def verdict(results: Iterable[Result], profiles: Sequence[str]) -> str:
    """FAILED on any required failure; INCOMPLETE when something required could not be judged; else CERTIFIED."""
    due = [r for r in results if is_required(r.behaviour, profiles)]
    if any(r.status is Status.FAILED for r in due):
        return FAILED
    if not due or any(r.leaves_incomplete or _asked_in_vain(r, profiles) for r in due):
        return INCOMPLETE
    # Profiles whose every requirement was inapplicable prove nothing.
    return CERTIFIED if any(r.status is Status.PASSED for r in due if not r.behaviour.is_baseline) else INCOMPLETE


def _asked_in_vain(result: Result, profiles: Sequence[str]) -> bool:
    """What does not apply proves nothing for a profile that exists because of it: no Delete is no cloud."""
    own = set(result.behaviour.profiles) - {"core"}
    return (
        result.skip is SkipKind.NOT_APPLICABLE
        and "core" not in result.behaviour.profiles
        and not own.isdisjoint(profiles)
    )


def report(config: Config, results: Sequence[Result], took: float) -> dict[str, Any]:
    """The content of report.json."""
    behaviours = [r for r in results if not r.behaviour.is_baseline]
    baseline = [r for r in results if r.behaviour.is_baseline]
    return {
        "provider": config.name,
        "profiles": list(config.profiles),
        "timestamp": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "verdict": verdict(results, config.profiles),
        "baseline": _totals(baseline),
        "extension": _totals(behaviours),
        "behaviors": [_entry(r, config) for r in behaviours],
        "summary": _summary(behaviours, config),
        "baseline_tests": [_entry(r, config) for r in baseline],
        "seconds": round(took, 3),
        "seed": config.seed,
    }


def badge(results: Sequence[Result], config: Config) -> dict[str, Any]:
    """The content of badge.json (shields.io endpoint schema)."""
    word = verdict(results, config.profiles)
    due = [r for r in results if not r.behaviour.is_baseline and is_required(r.behaviour, config.profiles)]
    totals = _totals(due)
    return {
        "schemaVersion": 1,
        "label": "bigfleet conformance",
        "message": f"{word} ({totals['passed']}/{totals['passed'] + totals['failed'] + totals['skipped']})",
        "color": _COLOURS[word],
    }


def junit(config: Config, results: Sequence[Result]) -> str:
    """The content of junit.xml."""
    root = ElementTree.Element("testsuites", name=f"bigfleet-conformance:{config.name}")
    for name, members in (
        ("upstream-baseline", [r for r in results if r.behaviour.is_baseline and _ran(r, config)]),
        ("extension", [r for r in results if not r.behaviour.is_baseline and _ran(r, config)]),
    ):
        if not members:
            continue
        totals = _totals(members)
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=name,
            tests=str(totals["tests"]),
            failures=str(totals["failed"]),
            skipped=str(totals["skipped"]),
            time=f"{sum(r.seconds for r in members):.3f}",
        )
        for result in members:
            _case(suite, result)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def write_reports(folder: Path, config: Config, results: Sequence[Result], took: float) -> None:
    """All three files into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    content = json.dumps(report(config, results, took), indent=2, ensure_ascii=False)
    (folder / "report.json").write_text(content + "\n", encoding="utf-8")
    (folder / "badge.json").write_text(json.dumps(badge(results, config), indent=2) + "\n", encoding="utf-8")
    (folder / "junit.xml").write_text(junit(config, results), encoding="utf-8")


def _totals(results: Iterable[Result]) -> dict[str, int]:
    members = list(results)
    counted = [r for r in members if r.skip is not SkipKind.NOT_SELECTED and r.status is not Status.NOT_IMPLEMENTED]
    return {
        "tests": len(counted),
        "passed": sum(r.status is Status.PASSED for r in counted),
        "failed": sum(r.status is Status.FAILED for r in counted),
        "skipped": sum(r.status is Status.SKIPPED for r in counted),
    }


def _summary(behaviours: Sequence[Result], config: Config) -> dict[str, int]:
    due = [r for r in behaviours if is_required(r.behaviour, config.profiles)]
    return {
        "total_behaviors": len(behaviours),
        "passed": sum(r.status is Status.PASSED for r in behaviours),
        "failed": sum(r.status is Status.FAILED for r in behaviours),
        "skipped": sum(r.status is Status.SKIPPED for r in behaviours),
        "not_implemented": sum(r.status is Status.NOT_IMPLEMENTED for r in behaviours),
        "required": len(due),
        "required_failed": sum(r.status is Status.FAILED for r in due),
        "required_missing": sum(r.leaves_incomplete for r in due),
        "required_skipped_for_inventory": sum(r.skip is SkipKind.INVENTORY for r in due),
    }


def _entry(result: Result, config: Config) -> dict[str, Any]:
    b = result.behaviour
    entry: dict[str, Any] = {
        "id": b.id,
        "area": b.area,
        "title": b.title,
        "profiles": list(b.profiles),
        "phase": b.lane.phase,
        "required": is_required(b, config.profiles),
        "status": result.status.value,
        "tests": [b.name],
        "seconds": round(result.seconds, 3),
    }
    if result.note:
        entry["note"] = result.note
    if result.skip is not None:
        entry["skip"] = result.skip.value
    if result.status is Status.FAILED:
        entry["failure"] = {
            "problem": result.problem,
            "calls": result.calls,
            "contract": " ".join(result.contract.split()),
        }
    return entry


def _ran(result: Result, config: Config) -> bool:
    return is_required(result.behaviour, config.profiles) and result.skip is not SkipKind.NOT_SELECTED


def _case(suite: ElementTree.Element, result: Result) -> None:
    b = result.behaviour
    area = re.sub(r"[^a-z]+", "-", b.area.lower()).strip("-")
    case = ElementTree.SubElement(
        suite,
        "testcase",
        name=b.name if b.is_baseline else f"{b.id}_{b.name}",
        classname=f"bigfleet.conformance.{area}",
        time=f"{result.seconds:.3f}",
    )
    if result.status is Status.FAILED:
        failure = ElementTree.SubElement(case, "failure", message=_xml(result.problem))
        failure.text = _xml(result.failure_text())
    elif result.status is not Status.PASSED:
        ElementTree.SubElement(case, "skipped", message=_xml(result.note or result.status.value))


def _xml(text: str) -> str:
    return _NOT_XML.sub("�", text)
