"""Names of objects and the metadata of an assignment."""

from __future__ import annotations

import math

import pytest

from bigfleet.model import assignment as attribution
from bigfleet.model.assignment import Assignment, decode, encode
from bigfleet.model.names import (
    INTERRUPTION_PENALTY_ANNOTATION,
    MACHINE_ID_LABEL,
    OWNED_BY_POD_LABEL,
    RECLAMATION_PENALTY_ANNOTATION,
    SIMULATED_LABEL,
    available_capacity_name,
    available_supersedes_key,
    is_object_name,
    node_supersedes_key,
    upcoming_node_name,
)
from bigfleet.model.penalty import BUCKETS, bucket_dollars

WEB = "p=1000|ipb=9|rpb=1|reqs=node.kubernetes.io/instance-type:1:c6i.4xlarge,m6i.4xlarge;|spr="
TRAINER = (
    "p=1000000|ipb=16|rpb=19|reqs=node.kubernetes.io/instance-type:1:a3-highgpu-8g;topology.bigfleet/rack:5:;"
    "|spr=topology.kubernetes.io/zone:1:1;"
)
PREFIX = "bigfleet.lucy.sh/assigned-"


def test_documented_available_capacity_names() -> None:
    assert available_capacity_name(available_supersedes_key(WEB)) == "ac-88f487a7798ba9e2566368fc7731b84a"
    assert available_capacity_name(available_supersedes_key(TRAINER)) == "ac-7f237d41d7cafd88eab49be676bc6ef8"


def test_frame_keys_and_documented_labels() -> None:
    assert available_supersedes_key("p=1") == "available:p=1"
    assert node_supersedes_key("gpu-7f3a") == "node:gpu-7f3a"
    assert OWNED_BY_POD_LABEL == "bigfleet.lucy.sh/owned-by-pod"
    assert INTERRUPTION_PENALTY_ANNOTATION == "bigfleet.lucy.sh/interruption-penalty"
    assert RECLAMATION_PENALTY_ANNOTATION == "bigfleet.lucy.sh/reclamation-penalty"
    assert MACHINE_ID_LABEL == "bigfleet.lucy.sh/machine-id"
    assert SIMULATED_LABEL == "bigfleet.lucy.sh/simulated"


@pytest.mark.parametrize("machine_id", ["gpu-7f3a", "web-0042", "a.b", "x" * 250])
def test_upcoming_node_is_named_after_a_fitting_machine_id(machine_id: str) -> None:
    assert upcoming_node_name(machine_id) == f"un-{machine_id}"


@pytest.mark.parametrize("machine_id", ["", "GPU-7F3A", "eu/west:1", "a..b", "x-", "é", "___", "x" * 251, "X" * 900])
def test_other_machine_ids_are_sanitised_and_hashed(machine_id: str) -> None:
    name = upcoming_node_name(machine_id)
    assert is_object_name(name)
    assert name != f"un-{machine_id}"
    assert name.startswith("un-")


def test_ids_that_sanitise_alike_keep_different_names() -> None:
    assert upcoming_node_name("eu/west:1") == "un-eu-west-1-" + upcoming_node_name("eu/west:1")[-16:]
    assert len({upcoming_node_name(name) for name in ("eu/west:1", "eu:west/1", "EU-WEST-1", "eu-west-1")}) == 4


def test_assignment_metadata_as_documented() -> None:
    assignment = Assignment(1000, 64.0, math.inf, WEB, "topology.bigfleet/rack\x00job=t7,;")
    assert encode(assignment) == {
        PREFIX + "priority": "1000",
        PREFIX + "interruption-penalty-dollars": "64",
        PREFIX + "reclamation-penalty-dollars": "+Inf",
        PREFIX + "need-fingerprint": WEB,
        PREFIX + "group": "topology.bigfleet/rack\x00job=t7,;",
    }
    assert decode(encode(assignment)) == (assignment, ())


@pytest.mark.parametrize("bucket", BUCKETS)
def test_every_bucket_bound_survives(bucket: int) -> None:
    assignment = Assignment(-(2**31), bucket_dollars(bucket), bucket_dollars(bucket), "", "")
    assert decode(encode(assignment)) == (assignment, ())


def test_absent_keys_stay_unknown_and_foreign_keys_are_ignored() -> None:
    assert decode({}) == (Assignment(), ())
    assert decode({"other/key": "x", PREFIX + "priority": "7"}) == (Assignment(priority=7), ())
    assert encode(Assignment()) == {}


def test_go_spellings_of_floats_are_read() -> None:
    for text, dollars in [
        ("8.388608e+06", 8388608.0),
        ("+Inf", math.inf),
        ("Inf", math.inf),
        ("0.5", 0.5),
        ("5.", 5.0),
    ]:
        assert decode({PREFIX + "interruption-penalty-dollars": text})[0].interruption_dollars == dollars


@pytest.mark.parametrize("text", ["", " 1", "1.5", "1_0", "x", "2147483648", "-2147483649", "9" * 5000, "١"])
def test_malformed_priority_costs_only_itself(text: str) -> None:
    decoded, problems = decode({PREFIX + "priority": text, PREFIX + "need-fingerprint": WEB})
    assert decoded == Assignment(fingerprint=WEB)
    assert len(problems) == 1
    assert PREFIX + "priority" in problems[0]
    assert repr(text) in problems[0]


@pytest.mark.parametrize("text", ["", "NaN", "-1", "-Inf", "1_0", "0x1p3", " 1", "$5"])
def test_malformed_dollars_cost_only_themselves(text: str) -> None:
    metadata = {PREFIX + "interruption-penalty-dollars": text, PREFIX + "reclamation-penalty-dollars": "4"}
    decoded, problems = decode(metadata)
    assert decoded == Assignment(reclamation_dollars=4.0)
    assert len(problems) == 1
    assert attribution.INTERRUPTION_KEY in problems[0]
