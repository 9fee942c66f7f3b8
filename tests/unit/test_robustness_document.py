"""docs/robustness.md names tests that exist and limits that hold."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

from bigfleet.shard.contract.limits import DOCUMENTED
from tools.attacks.__main__ import ATTACKS, with_table

TESTS = Path(__file__).resolve().parents[1]
DOCUMENT = (TESTS.parent / "docs" / "robustness.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`([a-z_/]+\.py)::(\w+)`", DOCUMENT)


def defined(path: Path) -> set[str]:
    found = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.name for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_named_test_exists() -> None:
    assert len(NAMED) > 40
    assert [(file, name) for file, name in NAMED if name not in defined(TESTS / file)] == []


def test_every_attack_names_a_test() -> None:
    attacks, limits = DOCUMENT.split("## Then and now")
    rows = [line for line in attacks.splitlines() if line.startswith("| ") and not line.startswith("| attack")]
    assert rows and [row for row in rows if "::" not in row] == []
    assert limits


def test_the_limits_are_those_of_the_code() -> None:
    told = dict(re.findall(r"^\| ([^|]+) \| ([\d,]+) \|$", DOCUMENT.split("## Limits of a roll-up")[1], re.MULTILINE))
    assert told == {what: f"{limit:,}" for what, limit in DOCUMENTED.items()}


def test_what_attacks_did_then_and_do_now_is_what_was_seen() -> None:
    kept = json.loads((TESTS.parent / "docs" / "evidence" / "attacks.json").read_text(encoding="utf-8"))
    assert with_table(DOCUMENT, kept["attacks"]) == DOCUMENT
    assert list(kept["attacks"]) == list(ATTACKS), "every attack was tried"
