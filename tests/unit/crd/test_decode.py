"""Objects of the three kinds decode to what BigFleet uses, and bad ones are refused by path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bigfleet.crd import (
    AvailableCapacity,
    CapacityRequest,
    CoLocation,
    Condition,
    DecodeError,
    LabelSelector,
    NodeReference,
    Requirement,
    Taint,
    Toleration,
    TopologySpread,
    UpcomingNode,
    decode_list,
    decode_object,
    decode_watch_event,
)

CASES: list[dict[str, Any]] = json.loads((Path(__file__).resolve().parents[2] / "data" / "crd_cases.json").read_text())
OBJECTS = {case["name"]: case["object"] for case in CASES}
KINDS: dict[str, Any] = {kind.__name__: kind for kind in (CapacityRequest, AvailableCapacity, UpcomingNode)}


def load(kind: Any, name: str) -> Any:
    return decode_object(kind, json.dumps(OBJECTS[name]).encode())


def test_web_pod() -> None:
    request = load(CapacityRequest, "documented example: a web pod")
    assert (request.metadata.namespace, request.metadata.name) == ("shop", "web-6f9c-1")
    assert request.spec.priority == 1000
    assert request.spec.resources == {"cpu": "2", "memory": "4Gi"}
    assert request.spec.requirements == (
        Requirement("node.kubernetes.io/instance-type", "In", ("m6i.4xlarge", "c6i.4xlarge")),
    )
    assert (request.spec.interruption_penalty, request.spec.reclamation_penalty) == ("40", "0")
    assert request.spec.co_location is None
    assert request.status.phase == ""


def test_trainer_gang() -> None:
    request = load(CapacityRequest, "documented example: a gang of trainers")
    assert request.metadata.generate_name == "cr-pod-trainer-0-"
    (owner,) = request.metadata.owner_references
    assert request.metadata.labels == {"bigfleet.lucy.sh/owned-by-pod": owner.uid}
    assert (owner.kind, owner.name, owner.controller) == ("Pod", "trainer-0", True)
    assert request.spec.topology_spread == (TopologySpread(1, "topology.kubernetes.io/zone", "DoNotSchedule"),)
    assert request.spec.co_location == CoLocation("topology.bigfleet/rack", LabelSelector({"job": "t7"}))
    assert request.status.phase == "Acknowledged"
    assert request.status.acknowledged_at == "2026-07-01T09:00:10Z"


def test_hint_and_nodes() -> None:
    hint = load(AvailableCapacity, "documented example: a capacity hint")
    assert (hint.spec.available_count, hint.spec.availability, hint.spec.cost) == (14, "High", "680m")
    assert hint.spec.resources == {}
    ready = load(UpcomingNode, "documented example: a ready node")
    assert ready.spec.taints == (Taint("nvidia.com/gpu", "NoSchedule", "present"),)
    assert ready.status.node_ref == NodeReference("Node", "gpu-7f3a")
    assert ready.status.provider_id == "i-0c0ffee0c0ffee000"
    failed = load(UpcomingNode, "documented example: a failed node")
    assert (failed.status.phase, failed.status.last_error) == ("Failed", "configure: provider timed out")
    assert failed.status.node_ref is None


def test_absent_and_zero_penalties_stay_distinct() -> None:
    assert load(CapacityRequest, "smallest request").spec.interruption_penalty is None
    declared = load(CapacityRequest, "penalties of zero, fraction, integer and suffix").spec
    assert (declared.interruption_penalty, declared.reclamation_penalty) == (0, "500m")


def test_additions_decode() -> None:
    request = load(CapacityRequest, "tolerations of every form")
    assert request.spec.tolerations[:2] == (Toleration(operator="Exists"), Toleration("k", "", "v", "NoSchedule"))
    (condition,) = load(CapacityRequest, "status with a condition").status.conditions
    assert condition == Condition(
        type="Satisfied",
        status="False",
        last_transition_time="2026-07-01T09:00:10Z",
        reason="NoMatchingSupply",
        message="no machine offers nvidia.com/gpu",
        observed_generation=1,
    )


@pytest.mark.parametrize("case", [case for case in CASES if not case["errors"]], ids=lambda case: case["name"])
def test_accepted_objects_encode_back_to_the_fields_we_use(case: dict[str, Any]) -> None:
    kind = KINDS[case["object"]["kind"]]
    decoded = decode_object(kind, json.dumps(case["object"]).encode())
    encoded = msgspec.json.encode(decoded)
    assert decode_object(kind, encoded) == decoded
    assert set(json.loads(encoded)["spec"]) <= set(case["object"]["spec"])


def test_fields_we_do_not_use_are_skipped() -> None:
    stored = OBJECTS["smallest request"] | {"future": {"a": [1]}}
    stored = stored | {"metadata": {"name": "r", "managedFields": [{"manager": "kubectl"}], "selfLink": "/x"}}
    assert decode_object(CapacityRequest, json.dumps(stored).encode()).metadata.name == "r"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no spec", "cannot read CapacityRequest: Object missing required field `spec`"),
        ("priority as text", "cannot read CapacityRequest: Expected `int`, got `str` - at `$.spec.priority`"),
        ("resource as a fraction without quotes", "at `$.spec.resources[...]`"),
    ],
)
def test_refusals_name_the_path(name: str, message: str) -> None:
    with pytest.raises(DecodeError) as refusal:
        load(CapacityRequest, name)
    assert message in str(refusal.value)


def test_pages_carry_their_continuation() -> None:
    page = {
        "kind": "CapacityRequestList",
        "metadata": {"resourceVersion": "77", "continue": "abc", "remainingItemCount": 9},
        "items": [OBJECTS["smallest request"], OBJECTS["documented example: a web pod"]],
    }
    decoded = decode_list(CapacityRequest, json.dumps(page).encode())
    assert (decoded.metadata.resource_version, decoded.metadata.continue_) == ("77", "abc")
    assert decoded.metadata.remaining_item_count == 9
    assert [item.metadata.name for item in decoded.items] == ["r", "web-6f9c-1"]
    with pytest.raises(DecodeError, match=r"cannot read UpcomingNodeList: .*items\[0\]\.spec\.resources"):
        decode_list(UpcomingNode, b'{"metadata": {}, "items": [{"metadata": {}, "spec": {"resources": 1}}]}')


def test_watch_events_are_opened_only_when_they_are_about_an_object() -> None:
    event = decode_watch_event(json.dumps({"type": "ADDED", "object": OBJECTS["smallest request"]}).encode())
    assert event.type == "ADDED"
    assert decode_object(CapacityRequest, event.object).metadata.name == "r"
    gone = decode_watch_event(b'{"type":"ERROR","object":{"kind":"Status","code":410}}')
    assert gone.type == "ERROR"
    with pytest.raises(DecodeError, match="cannot read CapacityRequest"):
        decode_object(CapacityRequest, gone.object)
    with pytest.raises(DecodeError, match="cannot read watch event"):
        decode_watch_event(b"{")
