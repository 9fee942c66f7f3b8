"""Soft taints of our nodes: what the scheduler, which counts them, makes of full, empty, closing and device nodes."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from bigfleet.operator.core.mirror.levels import DEVICE_TAINTS, THRESHOLDS
from bigfleet.operator.kube.client import Client
from bigfleet.operator.kube.objects import Node
from bigfleet.operator.shell.node_marks import NodeMarks


def soft_taints(level: int, *, closing: bool = False, gpus: bool = False) -> set[str]:
    allocatable = {"cpu": "8", "memory": "32Gi", **({"nvidia.com/gpu": "8"} if gpus else {})}
    node = msgspec.convert({"metadata": {"name": "n"}, "status": {"allocatable": allocatable}}, Node)
    marks = NodeMarks(cast(Client, None), {"n": node}, cordon_closing=False, levels=len(THRESHOLDS))
    marks.level("n", level)
    if closing:
        marks.close("n", 1)
    patch = cast(dict[str, Any], marks._patch("n", node) or {})
    return {taint["key"] for taint in patch.get("spec", {}).get("taints", ())}


def test_a_closing_node_has_more_taints_than_any_open_one_however_full_it_is() -> None:
    assert len(soft_taints(0, closing=True)) > len(soft_taints(len(THRESHOLDS)))
    most = DEVICE_TAINTS + len(THRESHOLDS)
    assert len(soft_taints(DEVICE_TAINTS, closing=True, gpus=True)) > len(soft_taints(most, gpus=True))


def test_a_full_node_with_devices_has_more_taints_than_an_empty_one_without() -> None:
    assert soft_taints(0) == set()
    assert len(soft_taints(DEVICE_TAINTS, gpus=True)) > len(soft_taints(len(THRESHOLDS)))
