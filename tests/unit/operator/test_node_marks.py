"""Soft taints of our nodes: what the scheduler, which counts them, makes of full, empty, closing and device nodes."""

from __future__ import annotations

import asyncio
import math
from typing import Any, cast

import msgspec
import pytest

from bigfleet.model.names import MEMORY_PER_CORE_LABEL
from bigfleet.operator.core.drains import ResumedDrain
from bigfleet.operator.core.events import DrainCause
from bigfleet.operator.core.mirror.levels import SPARED, THRESHOLDS
from bigfleet.operator.kube.client import ApiError, Client
from bigfleet.operator.kube.objects import Node
from bigfleet.operator.reading.shapes import CLOSING_ANNOTATION, CLOSING_TAINT, KEPT_ANNOTATION, KEPT_TAINT, node_seen
from bigfleet.operator.shell.node_marks import DRAIN_ANNOTATION, NodeMarks, read_drain, write_drain
from bigfleet.operator.shell.settings import OperatorSettings


@pytest.mark.parametrize(("hard", "effect"), [(True, "NoSchedule"), (False, "PreferNoSchedule")])
def test_a_closing_node_takes_nobody_unless_its_owner_wants_it_soft(hard: bool, effect: str) -> None:
    node = msgspec.convert({"metadata": {"name": "n"}}, Node)
    marks = NodeMarks(cast(Client, None), {"n": node}, hard_closing=hard, levels=0)
    marks.close("n", 7)
    patch = cast(dict[str, Any], marks._patch("n", node))
    assert patch["spec"]["taints"] == [{"key": CLOSING_TAINT, "effect": effect}]
    assert "unschedulable" not in patch["spec"], "a cordon is for others to set"
    shown = msgspec.convert({"metadata": {"name": "n", **patch["metadata"]}, "spec": patch["spec"]}, Node)
    seen = node_seen(shown, machine="m")
    assert (seen.closing_since, seen.taints) == (7, ()), "a restarted operator reads it as closing, not as a filter"
    again = NodeMarks(cast(Client, None), {"n": shown}, hard_closing=hard, levels=0)
    again.close("n", 0)
    assert cast(dict[str, Any], again._patch("n", shown))["spec"]["taints"] == []


def soft_taints(level: int, *, closing: bool = False, gpus: bool = False) -> set[str]:
    allocatable = {"cpu": "8", "memory": "32Gi", **({"nvidia.com/gpu": "8"} if gpus else {})}
    node = msgspec.convert({"metadata": {"name": "n"}, "status": {"allocatable": allocatable}}, Node)
    marks = NodeMarks(cast(Client, None), {"n": node}, hard_closing=True, levels=len(THRESHOLDS))
    marks.level("n", level)
    if closing:
        marks.close("n", 1)
    patch = cast(dict[str, Any], marks._patch("n", node) or {})
    return {taint["key"] for taint in patch.get("spec", {}).get("taints", ())}


def test_a_closing_node_has_more_taints_than_any_open_one_however_full_it_is() -> None:
    assert len(soft_taints(0, closing=True)) > len(soft_taints(len(THRESHOLDS)))
    most = SPARED + len(THRESHOLDS)
    assert len(soft_taints(SPARED, closing=True, gpus=True)) > len(soft_taints(most, gpus=True))


def test_a_full_node_with_devices_has_more_taints_than_an_empty_one_without() -> None:
    assert soft_taints(0) == set()
    assert len(soft_taints(SPARED, gpus=True)) > len(soft_taints(len(THRESHOLDS)))


def test_a_node_that_is_not_interrupted_is_spared_whatever_else_it_has() -> None:
    most = SPARED + len(THRESHOLDS)
    assert len(soft_taints(SPARED)) == SPARED
    assert (
        len(soft_taints(2 * SPARED, gpus=True)) > len(soft_taints(most, gpus=True)) > len(soft_taints(len(THRESHOLDS)))
    )


def test_a_node_that_is_kept_takes_nobody_until_it_is_let_go_and_a_restarted_operator_knows() -> None:
    foreign = {"key": "theirs", "effect": "NoSchedule"}
    node = msgspec.convert({"metadata": {"name": "n"}, "spec": {"taints": [foreign]}}, Node)
    nodes = {"n": node}
    marks = NodeMarks(cast(Client, None), nodes, hard_closing=True, levels=0)
    marks.keep("n", "gang g")
    patch = cast(dict[str, Any], marks._patch("n", node))
    assert {(taint["key"], taint["effect"]) for taint in patch["spec"]["taints"]} == {
        ("theirs", "NoSchedule"),
        (KEPT_TAINT, "NoSchedule"),
    }
    written = {"metadata": {"name": "n", **patch["metadata"]}, "spec": patch["spec"]}
    written["metadata"].pop("resourceVersion", None)
    nodes["n"] = node = msgspec.convert(written, Node)
    seen = node_seen(node, machine="m")
    assert seen.kept_for == "gang g"
    assert [taint.key for taint in seen.taints] == ["theirs"], "filters judge it as it will be"
    again = NodeMarks(cast(Client, None), nodes, hard_closing=True, levels=0)
    assert again._patch("n", node) is None
    again.keep("n", "")
    patch = cast(dict[str, Any], again._patch("n", node))
    assert [taint["key"] for taint in patch["spec"]["taints"]] == ["theirs"]
    assert patch["metadata"]["annotations"] == {KEPT_ANNOTATION: None}


def _shown(cpu: str, memory: str, *, closing: bool = False, label: str = "", **more: str) -> object:
    """The label that is written on such a node: None takes it away, False leaves what there is."""
    metadata = {"name": "n", "labels": {MEMORY_PER_CORE_LABEL: label} if label else {}}
    status = {"allocatable": {"cpu": cpu, "memory": memory, "pods": "110", **more}}
    node = msgspec.convert({"metadata": metadata, "status": status}, Node)
    marks = NodeMarks(cast(Client, None), {"n": node}, hard_closing=True, levels=0)
    marks.identify("n", "m")
    if closing:
        marks.close("n", 1)
    patch = cast(dict[str, Any], marks._patch("n", node) or {})
    return patch.get("metadata", {}).get("labels", {}).get(MEMORY_PER_CORE_LABEL, False)


def test_a_node_says_of_which_proportion_it_is() -> None:
    # What kubelets leave of 2, 4, 8 and 16 GiB a core.
    assert [_shown(cpu, memory) for cpu, memory in (("3920m", "6Gi"), ("1930m", "7183Mi"), ("7910m", "60Gi"))] == [
        "2",
        "4",
        "8",
    ]
    assert _shown("1930m", "29Gi") == "16"
    assert _shown("4", "16Gi", label="4") is False, "nothing is written twice"


def test_nobody_is_drawn_to_nodes_that_close_or_have_devices() -> None:
    assert _shown("4", "16Gi", closing=True) is False
    assert _shown("4", "16Gi", closing=True, label="4") is None
    assert _shown("4", "16Gi", label="4", **{"nvidia.com/gpu": "1"}) is None


def test_whoever_takes_the_taint_away_opens_the_node() -> None:
    node = msgspec.convert({"metadata": {"name": "n", "annotations": {KEPT_ANNOTATION: "gang g"}}}, Node)
    assert node_seen(node, machine="m").kept_for == ""


@pytest.mark.parametrize(("dollars", "spares"), [(0.5, True), (1.0, True), (64.0, False), (math.inf, False)])
def test_pods_are_led_to_spot_nodes_only_where_little_is_at_stake_for_them(dollars: float, spares: bool) -> None:
    settings = OperatorSettings("c", "127.0.0.1:1", keep_off_interruptible=dollars)
    assert settings.spares_firm_nodes is spares


class _Cluster:
    """Nodes behind an API: each write of somebody else's between a read and a patch is refused as a conflict."""

    def __init__(self, nodes: dict[str, dict[str, Any]], conflicts: int = 0) -> None:
        self.nodes = nodes
        self.conflicts = conflicts

    async def get(self, path: str) -> bytes:
        return msgspec.json.encode(self.nodes[path.rpartition("/")[2]])

    async def patch(self, path: str, body: dict[str, Any]) -> bytes:
        if self.conflicts:
            self.conflicts -= 1
            raise ApiError(409, "Conflict", "changed meanwhile")
        node = self.nodes[path.rpartition("/")[2]]
        for key, value in body.get("metadata", {}).get("annotations", {}).items():
            node["metadata"]["annotations"].pop(key) if value is None else node["metadata"]["annotations"].update(
                {key: value}
            )
        node["spec"].update(body.get("spec", {}))
        return b""

    def view(self) -> dict[str, Node]:
        return {name: msgspec.convert(node, Node) for name, node in self.nodes.items()}


def _shut_cluster() -> _Cluster:
    hard = {"effect": "NoSchedule"}
    return _Cluster(
        {
            "closing": {
                "metadata": {"name": "closing", "annotations": {CLOSING_ANNOTATION: "7"}},
                "spec": {"taints": [{"key": "theirs", "effect": "NoExecute"}, {"key": CLOSING_TAINT, **hard}]},
            },
            "kept": {
                "metadata": {"name": "kept", "annotations": {KEPT_ANNOTATION: "devices"}},
                "spec": {"taints": [{"key": KEPT_TAINT, "value": "kept", **hard}]},
            },
            "open": {"metadata": {"name": "open", "annotations": {}}, "spec": {}},
        }
    )


@pytest.mark.parametrize("conflicts", [0, 1, 3])
def test_an_operator_that_leaves_shuts_nobody_out_and_the_next_one_goes_on(conflicts: int) -> None:
    cluster = _shut_cluster()
    cluster.conflicts = conflicts
    marks = NodeMarks(cast(Client, cluster), cluster.view(), hard_closing=True, levels=0)
    asyncio.run(marks.leave(5))
    after = cluster.view()
    assert {(taint.key, taint.effect) for taint in after["closing"].spec.taints} == {
        ("theirs", "NoExecute"),
        (CLOSING_TAINT, "PreferNoSchedule"),
    }
    assert after["kept"].spec.taints == () and KEPT_ANNOTATION not in after["kept"].metadata.annotations
    assert node_seen(after["closing"], machine="m").closing_since == 7
    nodes = cluster.view()
    resumed = NodeMarks(cast(Client, cluster), nodes, hard_closing=True, levels=0)
    for name in nodes:
        resumed.identify(name, name)
    assert not resumed.work.idle, "the next operator shuts it again"


def test_leaving_ends_in_time_though_nobody_answers() -> None:
    class Silent(_Cluster):
        async def get(self, path: str) -> bytes:
            await asyncio.sleep(3600)
            return b""

    cluster = Silent(_shut_cluster().nodes)
    marks = NodeMarks(cast(Client, cluster), cluster.view(), hard_closing=True, levels=0)
    asyncio.run(asyncio.wait_for(marks.leave(0.05), 5))


@pytest.mark.parametrize(
    ("drain", "text"),
    [
        (ResumedDrain("m", "i", 9, DrainCause.PREEMPTION), "i 9 preemption"),
        (ResumedDrain("m", "i", 9, DrainCause.NOTICE, 4), "i 9 notice 4"),
        (ResumedDrain("m", "i", 0), "i 9 notice soon"),
        (ResumedDrain("m", "i", 0), "i 9 whim"),
    ],
)
def test_a_drain_is_read_from_the_node_as_it_was_written(drain: ResumedDrain, text: str) -> None:
    node = msgspec.convert({"metadata": {"name": "n", "annotations": {DRAIN_ANNOTATION: text}}}, Node)
    assert read_drain(node, "m") == drain
    if drain.until:
        assert write_drain(drain) == text
