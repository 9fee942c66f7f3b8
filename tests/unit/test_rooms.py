"""The shape of the tree: fronts nobody reaches past, numbers nobody retypes, folders a person can take in."""

from __future__ import annotations

import ast
import statistics
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import bigfleet
from bigfleet.model import machine, penalty, resources
from bigfleet.shard.contract.config import ShardConfig
from bigfleet.shard.contract.events import JournalState
from bigfleet.shard.core.core import ShardCore

SOURCE = Path(bigfleet.__file__).parent
MODULES = sorted(path for path in SOURCE.rglob("*.py") if "wire" not in path.relative_to(SOURCE).parts)
# What the shells may use of the core besides its methods: the door for questions.
DOORS = {"read"}
# The suite judges providers and must not share our model's mistakes: it keeps its own copy, and says so.
INDEPENDENT = SOURCE / "provider" / "conformance" / "states.py"


def parts_of_the_core() -> set[str]:
    core = ShardCore(ShardConfig(), JournalState(1))
    return {name for name in vars(core) if not name.startswith("_")} - DOORS


def reaching(text: str, parts: set[str]) -> Iterator[str]:
    """Places where something called a core is asked for a part of it."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and node.attr in parts:
            owner = node.value
            name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
            if name in ("core", "_core"):
                yield f"line {node.lineno}: {name}.{node.attr}"


def test_the_rule_about_fronts_sees_a_shell_that_reaches_past_one() -> None:
    parts = parts_of_the_core()
    assert {"state", "demand", "executor"} <= parts
    assert list(reaching("x = self.core.state.fleet", parts)) == ["line 1: core.state"]
    assert list(reaching("x = self.core.read.record('m')", parts)) == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_nobody_reaches_past_the_front_of_the_shards_core(path: Path) -> None:
    if (SOURCE / "shard" / "core") not in path.parents:
        assert list(reaching(path.read_text(), parts_of_the_core())) == []


def names_of_the_model() -> set[str]:
    """Names of states, kinds, buckets and limits: each has its number in one place."""
    states = {*machine.MachineState.__members__, *machine.CapacityType.__members__} - {"UNSPECIFIED"}
    limits = {name for module in (machine, resources) for name in vars(module) if name.startswith("MAX_")}
    return states | limits | {name for name in vars(penalty) if name.isupper() and name not in ("UNSPECIFIED", "ZERO")}


def retyped(text: str, names: set[str]) -> list[str]:
    """Model names that get a number anew, by a module or by a class that spells out several of them."""
    module = ast.parse(text)
    classes = [numbered(node.body, names) for node in ast.walk(module) if isinstance(node, ast.ClassDef)]
    return [*numbered(module.body, names), *(name for found in classes if len(found) > 1 for name in found)]


def numbered(body: list[ast.stmt], names: set[str]) -> list[str]:
    found = []
    for node in body:
        for target in node.targets if isinstance(node, ast.Assign) else []:
            given = target.elts if isinstance(target, ast.Tuple) else [target]
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value] * len(given)
            for name, value in zip(given, values, strict=False):
                number = isinstance(value, ast.Constant) and isinstance(value.value, int)
                if isinstance(name, ast.Name) and name.id.lstrip("_") in names and number:
                    found.append(name.id)
    return found


def test_the_rule_about_numbers_sees_one_that_is_retyped() -> None:
    names = names_of_the_model()
    assert {"IDLE", "SPOT", "BUCKETS", "MAX_LABELS", "MAX_NEED_UNITS"} <= names
    assert retyped("SPECULATIVE, IDLE = 1, 3", names) == ["SPECULATIVE", "IDLE"]
    assert retyped("BUCKETS = 28", names) == ["BUCKETS"]
    assert retyped("class S:\n    IDLE = 3\n    FAILED = 8", names) == ["IDLE", "FAILED"]
    assert retyped("class Ack:\n    FAILED = 4", names) == [], "another thing that can fail"
    assert retyped("IDLE = MachineState.IDLE", names) == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_no_number_of_the_model_is_retyped(path: Path) -> None:
    if (SOURCE / "model") not in path.parents and path != INDEPENDENT:
        assert retyped(path.read_text(), names_of_the_model()) == []


def test_no_folder_holds_more_than_twenty_modules() -> None:
    folders = Counter(path.parent.relative_to(SOURCE).as_posix() for path in MODULES if path.name != "__init__.py")
    assert [(folder, count) for folder, count in folders.items() if count > 20] == []


def test_the_median_module_reads_in_one_sitting() -> None:
    lengths = [len(path.read_text().splitlines()) for path in MODULES if path.name != "__init__.py"]
    assert statistics.median(lengths) < 200


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_every_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))
