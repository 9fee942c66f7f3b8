"""docs/engine-behaviours.md names only tests that exist, and every test of an improvement is named in it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
DOCUMENT = (TESTS.parent / "docs" / "engine-behaviours.md").read_text()
NAMED = re.findall(r"`([a-z/_]+\.py)::([a-z0-9_]+)`", DOCUMENT)


def defined(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_every_behaviour_has_a_test() -> None:
    rows = [
        line
        for line in DOCUMENT.splitlines()
        if line.startswith("| ") and not line.startswith(("| behaviour", "| improvement", "| claim"))
    ]
    assert len(rows) > 150
    assert [row for row in rows if "::" not in row] == []
    files = {file: defined(TESTS / file) for file, _ in NAMED}
    assert [(file, name) for file, name in NAMED if name not in files[file]] == []


def test_every_improvement_is_in_the_document() -> None:
    named = {name for _, name in NAMED}
    found = {
        name
        for path in (TESTS / "unit").glob("test_engine_*.py")
        for name in defined(path)
        if name.startswith("test_improvement_")
    }
    assert sorted(found - named) == []
