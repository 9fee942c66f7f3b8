"""Verdicts and the three report files in their documented shapes."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

from bigfleet.provider.conformance.config import Config
from bigfleet.provider.conformance.registry import catalogue
from bigfleet.provider.conformance.report import badge, report, verdict, write_reports
from bigfleet.provider.conformance.runner import is_required
from bigfleet.provider.conformance.verdicts import Result, SkipKind, Status

CONFIG = Config(target="a:1", provider="acme", profiles=("core", "cloud"))


def results(**changes: Result) -> list[Result]:
    """Everything required passed, except what is given by id."""
    out = []
    for b in catalogue():
        passed = is_required(b, CONFIG.profiles)
        plain = Result(b, Status.PASSED, 0.1) if passed else Result(b, Status.SKIPPED, skip=SkipKind.NOT_APPLICABLE)
        out.append(changes.get(b.id, plain))
    return out


def one(behaviour_id: str, status: Status, skip: SkipKind | None = None) -> dict[str, Result]:
    (b,) = [b for b in catalogue() if b.id == behaviour_id]
    result = Result(b, status, 0.2, problem="it is \x00 wrong", contract="The rule.", calls=["sent  X\nback  Y"])
    result.skip = skip
    return {behaviour_id: result}


def test_all_required_passed_is_certified() -> None:
    assert verdict(results(), CONFIG.profiles) == "CERTIFIED"


def test_one_required_failure_fails() -> None:
    assert verdict(results(**one("B305", Status.FAILED)), CONFIG.profiles) == "FAILED"
    assert verdict(results(**one("TestConformance_FullLifecycle", Status.FAILED)), CONFIG.profiles) == "FAILED"


def test_a_failure_nobody_claimed_does_not_matter() -> None:
    assert verdict(results(**one("B1001", Status.FAILED)), CONFIG.profiles) == "CERTIFIED"


def test_skips_for_lack_of_inventory_or_configuration_are_incomplete() -> None:
    for kind in (SkipKind.INVENTORY, SkipKind.NOT_CONFIGURED, SkipKind.NOT_SELECTED):
        assert verdict(results(**one("B305", Status.SKIPPED, kind)), CONFIG.profiles) == "INCOMPLETE"
    assert verdict(results(**one("B305", Status.NOT_IMPLEMENTED)), CONFIG.profiles) == "INCOMPLETE"


def test_what_does_not_apply_counts_as_pass() -> None:
    assert verdict(results(**one("B109", Status.SKIPPED, SkipKind.NOT_APPLICABLE)), CONFIG.profiles) == "CERTIFIED"


def test_what_does_not_apply_never_certifies_a_profile_that_asks_for_it() -> None:
    """No Delete, no cloud: the behaviours of that profile prove nothing when they could not be asked."""
    skipped = results(**one("B313", Status.SKIPPED, SkipKind.NOT_APPLICABLE))
    assert verdict(skipped, ("core", "cloud")) == "INCOMPLETE"
    assert verdict(skipped, ("core",)) == "CERTIFIED"
    optional = results(**one("B313", Status.SKIPPED, SkipKind.OPTIONAL))
    assert verdict(optional, ("core", "cloud")) == "CERTIFIED"


def test_a_profile_of_which_nothing_was_judged_certifies_nothing() -> None:
    assert verdict([], ("bare-metal",)) == "INCOMPLETE"


def test_report_has_the_documented_fields() -> None:
    content = report(CONFIG, results(**one("B305", Status.FAILED)), 12.0)
    assert content["provider"] == "acme"
    assert content["profiles"] == ["core", "cloud"]
    assert content["timestamp"].endswith("Z")
    assert content["verdict"] == "FAILED"
    assert content["baseline"] == {"tests": 25, "passed": 25, "failed": 0, "skipped": 0}
    assert set(content["extension"]) == {"tests", "passed", "failed", "skipped"}
    (entry,) = [b for b in content["behaviors"] if b["id"] == "B305"]
    for key in ("id", "area", "title", "profiles", "phase", "required", "status", "tests"):
        assert key in entry
    assert (entry["status"], entry["phase"], entry["required"]) == ("failed", 2, True)
    assert entry["failure"]["calls"] == ["sent  X\nback  Y"]
    summary = content["summary"]
    for key in ("total_behaviors", "passed", "failed", "skipped", "not_implemented", "required_failed"):
        assert isinstance(summary[key], int)
    assert (summary["required_failed"], summary["required_missing"]) == (1, 0)


def test_badge_follows_the_shields_schema() -> None:
    good = badge(results(), CONFIG)
    required = sum(is_required(b, CONFIG.profiles) and not b.is_baseline for b in catalogue())
    assert good == {
        "schemaVersion": 1,
        "label": "bigfleet conformance",
        "message": f"CERTIFIED ({required}/{required})",
        "color": "brightgreen",
    }
    assert badge(results(**one("B305", Status.FAILED)), CONFIG)["color"] == "red"
    assert badge(results(**one("B305", Status.SKIPPED, SkipKind.INVENTORY)), CONFIG)["color"] == "yellow"


def test_all_three_files_are_written_and_parse(tmp_path: Path) -> None:
    write_reports(tmp_path / "out", CONFIG, results(**one("B305", Status.FAILED)), 1.0)
    assert json.loads((tmp_path / "out/report.json").read_text())["verdict"] == "FAILED"
    assert json.loads((tmp_path / "out/badge.json").read_text())["schemaVersion"] == 1
    root = ElementTree.parse(tmp_path / "out/junit.xml").getroot()
    assert root.get("name") == "bigfleet-conformance:acme"
    suites = {suite.get("name"): suite for suite in root}
    assert set(suites) == {"upstream-baseline", "extension"}
    (failure,) = suites["extension"].findall("testcase/failure")
    assert "The rule." in (failure.text or "")
    assert suites["extension"].get("failures") == "1"
