"""Machines: the two edge tables, the invariants, the generated document."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bigfleet.model.machine import (
    CALL_DURING,
    DRIVEN_EDGES,
    OBSERVED_EDGES,
    PASSAGES,
    STABLE,
    CallKind,
    MachineState,
    price_flaw,
    structure_flaw,
)
from tools.machine_states import page

S = MachineState
HOST = "i-1"


class Listed(NamedTuple):
    id: str
    state: int
    host: str = ""
    cluster: str = ""
    last_error: str = ""


GOOD = {
    S.SPECULATIVE: Listed("m", S.SPECULATIVE),
    S.CREATING: Listed("m", S.CREATING),
    S.IDLE: Listed("m", S.IDLE, HOST),
    S.CONFIGURING: Listed("m", S.CONFIGURING, HOST, "c"),
    S.CONFIGURED: Listed("m", S.CONFIGURED, HOST, "c"),
    S.DRAINING: Listed("m", S.DRAINING, HOST, "c"),
    S.DELETING: Listed("m", S.DELETING, HOST),
    S.FAILED: Listed("m", S.FAILED, last_error="boot timed out"),
}


def test_driven_edges_are_the_documented_ones() -> None:
    numbers = {(int(before), int(after)) for before, after in DRIVEN_EDGES}
    assert numbers == {
        (1, 2), (2, 3), (2, 8), (3, 4), (3, 7), (4, 5), (4, 8), (4, 3), (5, 6), (6, 3), (6, 8), (7, 1), (7, 8),
    }  # fmt: skip


def test_whatever_we_drive_we_may_also_observe() -> None:
    assert all(OBSERVED_EDGES[edge] == cause for edge, cause in DRIVEN_EDGES.items())


def test_a_host_can_vanish_from_every_state() -> None:
    for state in MachineState:
        assert (state, None) in OBSERVED_EDGES
        assert (None, state) in OBSERVED_EDGES
    for edge in [
        (S.CONFIGURED, S.FAILED),
        (S.CONFIGURED, S.IDLE),
        (S.CONFIGURED, S.SPECULATIVE),
        (S.IDLE, S.SPECULATIVE),
    ]:
        assert edge in OBSERVED_EDGES
        assert edge not in DRIVEN_EDGES


def test_failed_is_left_only_by_what_the_provider_says() -> None:
    assert not [edge for edge in DRIVEN_EDGES if edge[0] is S.FAILED]
    assert (S.FAILED, S.IDLE) in OBSERVED_EDGES


def test_nobody_can_skip_the_stable_state_between_slot_and_binding() -> None:
    for edge in [(S.SPECULATIVE, S.CONFIGURED), (S.CREATING, S.CONFIGURED), (S.SPECULATIVE, S.DRAINING)]:
        assert edge not in OBSERVED_EDGES


def test_each_call_passes_through_a_state_of_its_own_along_driven_edges() -> None:
    assert set(PASSAGES) == set(CallKind)
    assert set(CALL_DURING) == {S.CREATING, S.CONFIGURING, S.DRAINING, S.DELETING}
    for call, passage in PASSAGES.items():
        assert CALL_DURING[passage.during] is call
        assert {passage.before, passage.after} <= STABLE
        assert {passage[:2], passage[1:]} <= set(DRIVEN_EDGES)


@pytest.mark.parametrize("state", MachineState)
def test_good_records_pass(state: MachineState) -> None:
    assert structure_flaw(*GOOD[state]) is None


@pytest.mark.parametrize(
    ("state", "changed"),
    [
        (S.SPECULATIVE, {"host": HOST}),
        (S.SPECULATIVE, {"cluster": "c"}),
        (S.CREATING, {"host": HOST}),
        (S.CREATING, {"cluster": "c"}),
        (S.IDLE, {"host": ""}),
        (S.IDLE, {"cluster": "c"}),
        (S.CONFIGURING, {"host": ""}),
        (S.CONFIGURED, {"host": ""}),
        (S.CONFIGURED, {"cluster": ""}),
        (S.DRAINING, {"cluster": ""}),
        (S.DELETING, {"host": ""}),
        (S.DELETING, {"cluster": "c"}),
        (S.FAILED, {"last_error": ""}),
        (S.IDLE, {"id": ""}),
        (S.IDLE, {"state": 0}),
        (S.IDLE, {"state": 9}),
    ],
)
def test_broken_grid_is_structural(state: MachineState, changed: dict[str, Any]) -> None:
    flaw = structure_flaw(*GOOD[state]._replace(**changed))
    assert flaw is not None
    assert flaw.reason == "structural"


def test_configuring_may_lack_its_cluster() -> None:
    assert structure_flaw(*GOOD[S.CONFIGURING]._replace(cluster="")) is None


@pytest.mark.parametrize("price", [-0.01, math.nan, math.inf])
def test_bad_price(price: float) -> None:
    flaw = price_flaw(price, 0.0)
    assert flaw is not None
    assert flaw.reason == "price"


@pytest.mark.parametrize("probability", [-0.01, 1.01, math.nan])
def test_bad_probability(probability: float) -> None:
    flaw = price_flaw(1.0, probability)
    assert flaw is not None
    assert flaw.reason == "interruption_probability"


def test_a_flaw_names_the_field_its_value_and_what_is_accepted() -> None:
    assert price_flaw(-1, 2) == ("price", "price_per_hour is -1; a finite number of at least 0 is accepted")
    assert structure_flaw("m", S.CONFIGURED, "", "", "") == (
        "structural",
        "host is '' in state Configured; it must be set",
    )


def test_the_document_is_generated_from_the_tables() -> None:
    document = Path(__file__).parents[3] / "docs" / "machine-states.md"
    assert document.read_text(encoding="utf-8") == page(), "run `make generate`"
