"""What a pod asks of a fleet, in the cases the documents name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bigfleet.crd.capacity_request import Requirement
from bigfleet.model.names import OWNED_BY_POD_LABEL
from bigfleet.operator.kube.objects import Pod
from bigfleet.operator.pods.rule import Mode, request_for, request_name, wants_request
from bigfleet.operator.pods.siblings import Siblings
from bigfleet.operator.reading.amounts import pod_requests
from bigfleet.operator.reading.wishes import Penalties, wish_of

UNSCHEDULABLE = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}


def pod(spec: dict[str, Any] | None = None, *, status: dict[str, Any] | None = None, **meta: Any) -> Pod:
    document = {
        "metadata": {"name": "web-0", "namespace": "shop", "uid": "u-1", **meta},
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
            **(spec or {}),
        },
        "status": status if status is not None else UNSCHEDULABLE,
    }
    return msgspec.json.decode(msgspec.json.encode(document), type=Pod)


def container(name: str, restart: str = "", **requests: str) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests}, **({"restartPolicy": restart} if restart else {})}


def expressions(*terms: list[tuple[str, str, list[str]]]) -> dict[str, Any]:
    made = [{"matchExpressions": [{"key": k, "operator": o, "values": v} for k, o, v in term]} for term in terms]
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": made}}}
    }


def test_a_large_init_container_counts_where_it_is_larger_than_what_runs_later() -> None:
    asked = pod({"initContainers": [container("i", cpu="4")], "containers": [container("c", cpu="1", memory="1Gi")]})
    assert pod_requests(asked).to_wire() == {"cpu": "4", "memory": "1Gi"}


def test_sidecars_run_beside_containers_and_beside_later_init_containers() -> None:
    inits = [container("s", "Always", cpu="2"), container("i", cpu="2500m")]
    asked = pod({"initContainers": inits, "containers": [container("c", cpu="1")]})
    assert pod_requests(asked).to_wire() == {"cpu": "4500m"}


def test_overhead_is_added_and_amounts_of_the_whole_pod_replace_the_sum() -> None:
    asked = pod({"overhead": {"cpu": "250m"}, "resources": {"requests": {"cpu": "3"}}})
    assert pod_requests(asked).to_wire() == {"cpu": "3250m", "memory": "1Gi"}


def test_a_container_that_is_being_resized_counts_at_the_larger_of_both_amounts() -> None:
    had = {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "3", "memory": "512Mi"}}]}
    assert pod_requests(pod(status=had)).to_wire() == {"cpu": "3", "memory": "1Gi"}


def test_without_any_wish_about_nodes_a_typed_machine_is_asked_for() -> None:
    spec = wish_of(pod()).spec
    assert spec is not None
    assert spec.requirements == (Requirement("node.kubernetes.io/instance-type", "Exists"),)


def test_a_node_selector_follows_the_affinity_terms() -> None:
    spec = wish_of(pod({**expressions([("zone", "In", ["a"])]), "nodeSelector": {"disk": "ssd"}})).spec
    assert spec is not None
    assert spec.requirements == (Requirement("zone", "In", ("a",)), Requirement("disk", "In", ("ssd",)))


def test_alternatives_that_differ_in_the_values_of_one_key_become_one_requirement() -> None:
    wish = wish_of(
        pod(
            expressions(
                [("zone", "In", ["a"]), ("arch", "Exists", [])], [("zone", "In", ["b"]), ("arch", "Exists", [])]
            )
        )
    )
    assert wish.spec is not None and not wish.left_out
    assert set(wish.spec.requirements) == {Requirement("zone", "In", ("a", "b")), Requirement("arch", "Exists")}


def test_of_alternatives_that_differ_in_two_keys_the_first_counts_and_it_is_said() -> None:
    wish = wish_of(pod(expressions([("zone", "In", ["a"])], [("arch", "In", ["arm64"])])))
    assert wish.spec is not None
    assert wish.spec.requirements == (Requirement("zone", "In", ("a",)),)
    assert len(wish.left_out) == 1


def test_what_no_fleet_can_be_asked_for_is_refused_with_the_reason() -> None:
    wish = wish_of(pod(expressions([("cores", "Gt", ["8"])])))
    assert wish.spec is None
    assert "cores Gt" in wish.refused


def test_soft_spreads_and_tolerations_of_conditions_are_left_out() -> None:
    spread = [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"},
        {"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"},
    ]
    tolerations = [
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
        {"key": "gpu", "operator": "Exists"},
    ]
    spec = wish_of(pod({"topologySpreadConstraints": spread, "tolerations": tolerations})).spec
    assert spec is not None
    assert [each.topology_key for each in spec.topology_spread] == ["rack"]
    assert [each.key for each in spec.tolerations] == ["gpu"]


@pytest.mark.parametrize(
    ("annotations", "klass", "expected"),
    [
        ({"bigfleet.lucy.sh/interruption-penalty": "8000"}, "", ("8k", None)),
        ({}, "research", ("8192", None)),
        ({"bigfleet.lucy.sh/interruption-penalty": "500m"}, "research", ("500m", None)),
        ({"bigfleet.lucy.sh/interruption-penalty": "much"}, "research", ("8192", None)),
        ({}, "unknown", (None, None)),
    ],
)
def test_a_penalty_is_the_annotation_else_the_class_default_else_undeclared(
    annotations: dict[str, str], klass: str, expected: tuple[str | None, str | None]
) -> None:
    defaults = {"research": Penalties(interruption="8192")}
    spec = wish_of(pod({"priorityClassName": klass}, annotations=annotations), defaults).spec
    assert spec is not None
    assert (spec.interruption_penalty, spec.reclamation_penalty) == expected


@pytest.mark.parametrize(
    ("given", "ours", "mode", "wanted"),
    [
        (pod(), False, Mode.UNSCHEDULABLE, True),
        (pod(status={}), False, Mode.UNSCHEDULABLE, False),
        (pod(status={}), False, Mode.ALL, True),
        (pod({"nodeName": "n"}, status={"phase": "Running"}), True, Mode.UNSCHEDULABLE, True),
        (pod({"nodeName": "n"}, status={"phase": "Running"}), False, Mode.UNSCHEDULABLE, False),
        (
            pod({"nodeName": "n"}, status={"phase": "Running"}, deletionTimestamp="2026-01-01T00:00:00Z"),
            True,
            Mode.UNSCHEDULABLE,
            True,
        ),
        (pod({"nodeName": "n"}, status={"phase": "Succeeded"}), True, Mode.ALL, False),
        (pod({"schedulingGates": [{"name": "g"}]}), False, Mode.ALL, False),
        (pod({"schedulerName": "other"}), False, Mode.UNSCHEDULABLE, False),
        (pod({"resourceClaims": [{"name": "g"}]}), False, Mode.UNSCHEDULABLE, False),
        (pod(ownerReferences=[{"kind": "DaemonSet", "name": "d", "uid": "d"}]), True, Mode.ALL, False),
        (pod(annotations={"kubernetes.io/config.mirror": "x"}), True, Mode.ALL, False),
        (pod(annotations={"bigfleet.lucy.sh/capacity-request": "mine"}), False, Mode.UNSCHEDULABLE, False),
    ],
)
def test_which_pods_have_a_request(given: Pod, ours: bool, mode: Mode, wanted: bool) -> None:
    assert wants_request(given, ours=ours, mode=mode) is wanted


def test_a_request_is_named_after_its_pods_life_and_owned_by_it() -> None:
    body, _ = request_for(pod())
    assert body is not None
    meta = body["metadata"]
    assert meta["name"] == request_name(pod()) != request_name(pod(uid="u-2"))
    assert meta["name"].startswith("cr-pod-web-0-")
    assert meta["labels"] == {OWNED_BY_POD_LABEL: "u-1"}
    assert (meta["ownerReferences"][0]["kind"], meta["ownerReferences"][0]["uid"]) == ("Pod", "u-1")


def made_by(kind: str, name: str, *, refused: bool = False, spec: dict[str, object] | None = None) -> Pod:
    owner = {"kind": kind, "name": "web", "uid": "rs-1", "controller": True}
    status = None if refused else {}
    return pod(spec or {}, status=status, name=name, uid=f"u-{name}", ownerReferences=[owner])


def test_a_pod_that_was_refused_speaks_for_those_of_its_template_that_nobody_has_looked_at() -> None:
    siblings = Siblings()
    first, second, late = (made_by("ReplicaSet", name) for name in ("a", "b", "c"))
    assert not siblings.seen("a", None, first) and not siblings.seen("b", None, second)
    assert not siblings.speak_for(second)
    refused = made_by("ReplicaSet", "a", refused=True)
    assert set(siblings.seen("a", first, refused)) == {"b"}
    assert siblings.speak_for(second) and siblings.speak_for(late)
    assert wants_request(second, ours=False, presumed=siblings.speak_for(second))
    bound = made_by("ReplicaSet", "a", spec={"nodeName": "n"})
    siblings.seen("a", refused, bound)
    assert not siblings.speak_for(second)


@pytest.mark.parametrize(
    "other",
    [
        made_by("StatefulSet", "b"),
        made_by("PyTorchJob", "b"),
        made_by("ReplicaSet", "b", spec={"volumes": [{"persistentVolumeClaim": {"claimName": "own"}}]}),
        made_by("ReplicaSet", "b", spec={"nodeName": "n"}),
        pod(status={"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulerError"}]}),
    ],
)
def test_nobody_speaks_for_a_pod_that_may_be_different(other: Pod) -> None:
    siblings = Siblings()
    siblings.seen("a", None, made_by("ReplicaSet", "a", refused=True))
    siblings.seen("b", None, other)
    assert not siblings.speak_for(other)
    assert not wants_request(other, ours=False, presumed=siblings.speak_for(other))
