"""The oracle decides by itself: it may read the engine's plain data, never the code that decides."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ORACLE = Path(__file__).parents[2] / "oracle"
# The adapter that lets tests run both is no part of the oracle.
SOURCES = sorted(path for path in ORACLE.rglob("*.py") if path.name != "implementations.py")
# Plain data of inputs, outputs and policy, and values of the model.
DATA = {
    "bigfleet.engine.batches": {"Breaker", "Conditions", "DemandBatch", "MachineBatch", "Rollup", "Shape"},
    "bigfleet.engine.placement": {"Backoff", "Counted", "Load", "Move", "NodeBatch", "Rest"},
    "bigfleet.engine.policy": {"Placement", "Policy", "RollupGuard", "VictimWeights"},
    "bigfleet.engine.results": {
        "Action",
        "ActionKind",
        "AvailableCapacity",
        "Disposition",
        "DomainCoverage",
        "NeedKey",
        "Reason",
        "RollupOutcome",
        "Shortfall",
        "Supply",
        "UnitParts",
        "UnmetReason",
        "Verdict",
    },
    # Of the oracle of the operator's mirror: what it is told, as plain data.
    "bigfleet.operator.core.mirror.facts": {
        "BudgetSeen",
        "NodeSeen",
        "Origin",
        "PodSeen",
        "PodShape",
        "PodTerm",
        "RequestSeen",
    },
    "bigfleet.model.profile": {"Profile"},
    "bigfleet.model.requirement": {"Operator", "Requirement"},
    "bigfleet.model.resources": {"Resources"},
    "bigfleet.model.spread": {"Spread"},
    "bigfleet.model.taint": {"Taint", "Toleration"},
}
# Decisions that these data happen to offer as methods: matching, dollars, graces, caps, holds.
BORROWED = {"blocks", "enforced_skew", "folded", "idle_hold_ns", "reclaim_cap", "strict", "tolerates"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ORACLE)))
def test_the_oracle_imports_plain_data_only(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert not [alias.name for alias in node.names if alias.name.startswith("bigfleet")]
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bigfleet"):
            assert node.module in DATA, f"{path.name} imports {node.module}"
            strangers = {alias.name for alias in node.names} - DATA[node.module]
            assert not strangers, f"{path.name} imports {strangers} from {node.module}"
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests"):
            assert node.module.startswith("tests.oracle."), f"{path.name} imports {node.module}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ORACLE)))
def test_the_oracle_calls_no_decision_of_the_product(path: Path) -> None:
    called = {
        node.func.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    assert not called & BORROWED


def test_the_check_sees_the_whole_oracle() -> None:
    assert {"step.py", "judging.py", "buying.py", "consolidate.py"} <= {path.name for path in SOURCES}
