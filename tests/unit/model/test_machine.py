"""Machines: the two edge tables, the invariants, the generated document."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from bigfleet.model.machine import (
    DRIVEN_EDGES,
    OBSERVED_EDGES,
    CapacityType,
    HostRef,
    Machine,
    MachineState,
    explain_violations,
    violations,
)
from bigfleet.model.names import INSTANCE_TYPE_LABEL, ZONE_LABEL
from bigfleet.model.profile import Profile
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import Resources
from tools.machine_states import page

S = MachineState
HOST = HostRef("aws-eu-west-1", "i-1")
GOOD = {
    S.SPECULATIVE: Machine("m", S.SPECULATIVE),
    S.CREATING: Machine("m", S.CREATING),
    S.IDLE: Machine("m", S.IDLE, host=HOST),
    S.CONFIGURING: Machine("m", S.CONFIGURING, host=HOST, cluster="c"),
    S.CONFIGURED: Machine("m", S.CONFIGURED, host=HOST, cluster="c"),
    S.DRAINING: Machine("m", S.DRAINING, host=HOST, cluster="c"),
    S.DELETING: Machine("m", S.DELETING, host=HOST),
    S.FAILED: Machine("m", S.FAILED, last_error="boot timed out"),
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


@pytest.mark.parametrize("state", MachineState)
def test_good_records_pass(state: MachineState) -> None:
    assert violations(GOOD[state]) == ()


@pytest.mark.parametrize(
    "machine",
    [
        replace(GOOD[S.SPECULATIVE], host=HOST),
        replace(GOOD[S.SPECULATIVE], cluster="c"),
        replace(GOOD[S.CREATING], host=HOST),
        replace(GOOD[S.CREATING], cluster="c"),
        replace(GOOD[S.IDLE], host=HostRef()),
        replace(GOOD[S.IDLE], cluster="c"),
        replace(GOOD[S.CONFIGURING], host=HostRef()),
        replace(GOOD[S.CONFIGURED], host=HostRef()),
        replace(GOOD[S.CONFIGURED], cluster=""),
        replace(GOOD[S.DRAINING], cluster=""),
        replace(GOOD[S.DELETING], host=HostRef()),
        replace(GOOD[S.DELETING], cluster="c"),
        replace(GOOD[S.FAILED], last_error=""),
        replace(GOOD[S.IDLE], id=""),
        replace(GOOD[S.IDLE], state=0),  # type: ignore[arg-type]
        replace(GOOD[S.IDLE], state=9),  # type: ignore[arg-type]
    ],
)
def test_broken_grid_is_structural(machine: Machine) -> None:
    assert violations(machine) == ("structural",)


def test_half_a_host_reference_is_a_host_and_configuring_may_lack_its_cluster() -> None:
    assert violations(replace(GOOD[S.IDLE], host=HostRef("", "i-1"))) == ()
    assert violations(replace(GOOD[S.CONFIGURING], cluster="")) == ()


@pytest.mark.parametrize("price", [-0.01, math.nan, math.inf])
def test_bad_price(price: float) -> None:
    assert violations(replace(GOOD[S.IDLE], price_per_hour=price)) == ("price",)


@pytest.mark.parametrize("probability", [-0.01, 1.01, math.nan])
def test_bad_probability(probability: float) -> None:
    assert violations(replace(GOOD[S.IDLE], interruption_probability=probability)) == ("interruption_probability",)


def test_each_reason_is_counted_once_and_each_fault_is_explained() -> None:
    machine = Machine("", S.CONFIGURED, price_per_hour=-1, interruption_probability=2)
    assert violations(machine) == ("price", "interruption_probability", "structural")
    assert [violation.detail for violation in explain_violations(machine)] == [
        "price_per_hour is -1; a finite number of at least 0 is accepted",
        "interruption_probability is 2; 0 to 1 is accepted",
        "id is empty; every machine needs one",
        "host is '/' in state Configured; it must be set",
        "cluster is '' in state Configured; it must be set",
    ]


def test_attributes_prefer_the_fields_and_fall_back_to_labels() -> None:
    labels = {INSTANCE_TYPE_LABEL: "label-type", ZONE_LABEL: "label-zone", "rack": "r1"}
    machine = Machine("m", S.IDLE, instance_type="m6i", host=HOST, labels=labels)
    assert machine.attribute(INSTANCE_TYPE_LABEL) == "m6i"
    assert machine.attribute(ZONE_LABEL) == "label-zone"
    assert machine.attribute("rack") == "r1"
    assert machine.attribute("absent") is None
    assert Profile([Requirement("rack", Operator.IN, ("r1",))], [], 0, 0, 0).matches(machine.attribute)
    assert not Profile([Requirement(ZONE_LABEL, Operator.DOES_NOT_EXIST)], [], 0, 0, 0).matches(machine.attribute)


def test_allocatable_falls_back_to_the_base_shape() -> None:
    shape, offered = Resources.of(cpu=1), Resources.of(cpu=16)
    assert Machine("m", S.IDLE, resources=shape).effective_allocatable == shape
    assert Machine("m", S.IDLE, resources=shape, allocatable=offered).effective_allocatable == offered


def test_machines_are_hashable_values() -> None:
    one = Machine("m", S.IDLE, capacity_type=CapacityType.SPOT, labels={"a": "b"})
    assert one == Machine("m", S.IDLE, capacity_type=CapacityType.SPOT, labels={"a": "b"})
    assert hash(one) == hash(replace(one))
    assert one != replace(one, labels={"a": "c"})


def test_the_document_is_generated_from_the_tables() -> None:
    document = Path(__file__).parents[3] / "docs" / "machine-states.md"
    assert document.read_text(encoding="utf-8") == page(), "run `make generate`"
