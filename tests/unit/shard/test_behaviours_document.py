"""docs/shard-behaviours.md names only tests that exist, and every test written for it is named in it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
DOCUMENT = (TESTS.parent / "docs" / "shard-behaviours.md").read_text()
NAMED = re.findall(r"`([a-z/_]+\.py)::([a-z0-9_]+)`", DOCUMENT)


def defined(path: Path) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)}


def test_every_behaviour_has_a_test_that_exists() -> None:
    lines = DOCUMENT.splitlines()
    rows = [
        line for line in lines if line.startswith("| ") and not line.startswith(("| behaviour", "| weak", "| what"))
    ]
    assert len(rows) > 70
    assert [row for row in rows if "::" not in row] == []
    files = {file: defined(TESTS / file) for file, _ in NAMED}
    assert [(file, name) for file, name in NAMED if name not in files[file]] == []


def test_every_behaviour_and_weak_spot_test_is_in_the_document() -> None:
    named = {name for _, name in NAMED}
    files = [*(TESTS / "component").glob("test_shard_behaviours_*.py"), TESTS / "component/test_shard_weak_spots.py"]
    found = {name for path in files for name in defined(path) if name.startswith("test_")}
    assert sorted(found - named) == []


def test_every_weak_spot_has_its_number() -> None:
    numbers = {int(name[5:7]) for _, name in NAMED if re.match(r"test_\d\d_", name)}
    assert numbers == set(range(1, 23))
