"""What we write on Nodes: cordon and drain, closing, levels of fill, for whom a new one is kept, its proportion of
memory to cores. One writer per node, from what it should show.

Everything is on the Node itself, so that a restarted operator finds it again: the drain as an annotation, closing as an
annotation and a taint (hard unless told otherwise), levels as soft taints, keeping as an annotation and a hard taint.
Whatever others wrote there stays. A node's proportion is a label, which pods of the same proportion may prefer; not on
nodes with devices, which are spared, and not while the node is closing: nobody is to be drawn to those.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec
import structlog

from bigfleet.crd.upcoming_node import Taint
from bigfleet.model.names import (
    API_GROUP,
    KEPT_TAINT,
    MACHINE_ID_ANNOTATION,
    MACHINE_ID_LABEL,
    MEMORY_PER_CORE_LABEL,
    kept_value,
)
from bigfleet.model.proportion import proportion
from bigfleet.model.quantity import parse_quantity
from bigfleet.model.resources import is_device
from bigfleet.operator.core.drains import ResumedDrain
from bigfleet.operator.core.events import DrainCause
from bigfleet.operator.core.mirror.levels import SPARED
from bigfleet.operator.kube.client import ApiError, Client, UnreachableError
from bigfleet.operator.kube.objects import Node
from bigfleet.operator.kube.worklist import CONFLICT, Worklist
from bigfleet.operator.reading.shapes import (
    CLOSING_ANNOTATION,
    CLOSING_TAINT,
    KEPT_ANNOTATION,
    closing_since,
    kept_for,
)

DRAIN_ANNOTATION = f"{API_GROUP}/drain"
FILL_TAINT = f"{API_GROUP}/fill-below-"
DEVICES_TAINT = f"{API_GROUP}/keeps-devices-"
FIRM_TAINT = f"{API_GROUP}/keeps-uninterrupted-"
THRESHOLDS = (90, 75, 60, 45, 30, 15)
_COUNTED = (FILL_TAINT, DEVICES_TAINT, FIRM_TAINT)
_SOFT, _HARD = "PreferNoSchedule", "NoSchedule"
# How often a node that others write to at the same time is tried on leaving.
_TRIES = 5

log = structlog.get_logger(__name__)


class NodeMarks:
    """What each node should show, as far as it was told; `nodes` is the view's."""

    def __init__(self, client: Client, nodes: Mapping[str, Node], *, hard_closing: bool, levels: int) -> None:
        self._client = client
        self._nodes = nodes
        self._hard_closing = hard_closing
        self._shown_levels = _spread_out(levels)
        self._drains: dict[str, ResumedDrain | None] = {}
        self._closing: dict[str, int] = {}
        self._levels: dict[str, int] = {}
        self._kept: dict[str, str] = {}
        self._machines: dict[str, str] = {}
        self.work = Worklist("mark node", self._mark, at_once=16)
        self.on_written: Callable[[str], None] = lambda name: None

    def drain(self, node: str, drain: ResumedDrain | None) -> None:
        """Cordoned for a drain, or no longer."""
        self._drains[node] = drain
        self.work.add(node)

    def identify(self, node: str, machine: str) -> None:
        """One of ours. Write the machine's id where the node's label cannot hold it."""
        shown = self._nodes[node].metadata
        if shown.labels.get(MEMORY_PER_CORE_LABEL) != self._proportion(node) or self._shows_other_taints(node):
            self.work.add(node)
        if shown.labels.get(MACHINE_ID_LABEL) != machine != shown.annotations.get(MACHINE_ID_ANNOTATION):
            self._machines[node] = machine
            self.work.add(node)

    def _shows_other_taints(self, name: str) -> bool:
        """Whether an operator before this one left it closing, but open to those who have nowhere else to go."""
        node = self._nodes[name]
        closing, kept = self._closing.get(name, closing_since(node)), self._kept.get(name, kept_for(node))
        return bool(closing) and self._taints(name, node, True, bool(kept)) != node.spec.taints

    def _proportion(self, name: str) -> str | None:
        """The proportion the node should show, if any."""
        node = self._nodes[name]
        allocatable = node.status.allocatable
        if self._closing.get(name, closing_since(node)) or any(map(is_device, allocatable)):
            return None
        cores, memory = (float(parse_quantity(str(allocatable.get(each, 0))).to_float()) for each in ("cpu", "memory"))
        return proportion(cores, memory / 2**30) or None

    def close(self, node: str, since: int) -> None:
        """Closing since then; 0 opens it again."""
        self._closing[node] = since
        self.work.add(node)

    def level(self, node: str, level: int) -> None:
        self._levels[node] = level
        self.work.add(node)

    def keep(self, node: str, whom: str) -> None:
        """Nobody may come to it but those it is kept for, when it is let go; empty lets it go."""
        self._kept[node] = whom
        self.work.add(node)

    def forget(self, node: str) -> None:
        for known in (self._drains, self._closing, self._levels, self._kept, self._machines):
            known.pop(node, None)

    async def leave(self, seconds: float) -> None:
        """Nobody will be here to open nodes: closing ones again take whoever has nowhere else to go, kept ones all.
        The annotations of closing nodes stay for the next operator. Ends after so long, done or not."""
        self._hard_closing = False
        # Nobody watches for us any more.
        self._nodes = nodes = dict(self._nodes)
        shut = [name for name, node in nodes.items() if any(map(_shuts, node.spec.taints))]
        self._kept.update(dict.fromkeys(shut, ""))
        opening = [asyncio.create_task(self._open(name, nodes)) for name in shut]
        if opening:
            _, late = await asyncio.wait(opening, timeout=seconds)
            for each in late:
                each.cancel()

    async def _open(self, name: str, nodes: dict[str, Node]) -> None:
        for _ in range(_TRIES):
            try:
                nodes[name] = msgspec.json.decode(await self._client.get(f"/api/v1/nodes/{name}"), type=Node)
                await self._mark(name)
            except (ApiError, UnreachableError) as error:
                if isinstance(error, ApiError) and error.status == CONFLICT:
                    continue
                log.warning("a closing or kept node could not be opened on leaving", node=name, err=str(error))
            return

    async def _mark(self, name: str) -> float | None:
        node = self._nodes.get(name)
        if node is None:
            self.forget(name)
            return None
        patch = self._patch(name, node)
        if patch is None:
            return None
        try:
            await self._client.patch(f"/api/v1/nodes/{name}", patch)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        self.on_written(name)
        return None

    def _patch(self, name: str, node: Node) -> dict[str, object] | None:
        """The difference between what the node shows and what it should; None when there is none."""
        annotations: dict[str, str | None] = {}
        spec: dict[str, object] = {}
        written = node.metadata.annotations
        cordoned = node.spec.unschedulable
        wanted = cordoned
        if name in self._machines and written.get(MACHINE_ID_ANNOTATION) != self._machines[name]:
            annotations[MACHINE_ID_ANNOTATION] = self._machines[name]
        if name in self._drains:
            drain = self._drains[name]
            text = None if drain is None else write_drain(drain)
            if written.get(DRAIN_ANNOTATION) != text:
                annotations[DRAIN_ANNOTATION] = text
            wanted = drain is not None
        since = self._closing.get(name, closing_since(node))
        if since != closing_since(node):
            annotations[CLOSING_ANNOTATION] = str(since) if since else None
        kept = self._kept.get(name, kept_for(node))
        if written.get(KEPT_ANNOTATION, "") != kept:
            annotations[KEPT_ANNOTATION] = kept or None
        if wanted != cordoned:
            spec["unschedulable"] = wanted or None
        taints = self._taints(name, node, bool(since), bool(kept))
        if taints != node.spec.taints:
            spec["taints"] = [msgspec.to_builtins(taint) for taint in taints]
        metadata: dict[str, object] = {}
        shape = self._proportion(name)
        if node.metadata.labels.get(MEMORY_PER_CORE_LABEL) != shape:
            metadata["labels"] = {MEMORY_PER_CORE_LABEL: shape}
        if not annotations and not spec and not metadata:
            return None
        if annotations:
            metadata["annotations"] = annotations
        if "taints" in spec:
            # A list is replaced as a whole: only if nobody changed it meanwhile.
            metadata["resourceVersion"] = node.metadata.resource_version
        return {**({"metadata": metadata} if metadata else {}), **({"spec": spec} if spec else {})}

    def _taints(self, name: str, node: Node, closing: bool, kept: bool) -> tuple[Taint, ...]:
        ours = [Taint(CLOSING_TAINT, _HARD if self._hard_closing else _SOFT)] if closing else []
        ours += [Taint(KEPT_TAINT, _HARD, kept_value(name))] if kept else []
        if name in self._levels:
            reasons, level = divmod(self._levels[name], SPARED)
            devices = any(is_device(resource) for resource in node.status.allocatable)
            # The scheduler counts taints, whatever they are called.
            spared = [*([DEVICES_TAINT] if devices else []), FIRM_TAINT][:reasons]
            ours += [Taint(f"{why}{number}", _SOFT) for why in spared for number in range(1, SPARED + 1)]
            # One taint is little where an empty node has six: a closing node shows those too, however full it is.
            below = set(THRESHOLDS if closing else THRESHOLDS[:level])
            ours += [Taint(f"{FILL_TAINT}{each}", _SOFT) for each in self._shown_levels if each in below]
        else:
            ours += [each for each in node.spec.taints if each.key.startswith(_COUNTED)]
        others = [each for each in node.spec.taints if not _is_ours(each)]
        wanted = [*others, *ours]
        # The order is of no meaning: the same taints in another order are not written again.
        return node.spec.taints if set(wanted) == set(node.spec.taints) else tuple(wanted)


def _shuts(taint: Taint) -> bool:
    return taint.key in (CLOSING_TAINT, KEPT_TAINT) and taint.effect == _HARD


def read_drain(node: Node, machine: str) -> ResumedDrain | None:
    """The drain an earlier life of the operator wrote on the node."""
    written = node.metadata.annotations.get(DRAIN_ANNOTATION)
    if not written:
        return None
    instruction, _, rest = written.partition(" ")
    until, _, rest = rest.partition(" ")
    cause, _, evict_by = rest.partition(" ")
    if not until.isdecimal() or cause not in set(DrainCause) or not (evict_by or "0").isdecimal():
        # Not ours to read: a drain whose grace is over, which ends as one and is undone unless the shard claims it.
        return ResumedDrain(machine, instruction, 0)
    return ResumedDrain(machine, instruction, int(until), DrainCause(cause), int(evict_by or "0"))


def write_drain(drain: ResumedDrain) -> str:
    waits = f" {drain.evict_by}" if drain.evict_by else ""
    return f"{drain.instruction_id} {drain.until} {drain.cause}{waits}"


def _is_ours(taint: Taint) -> bool:
    return taint.key in (CLOSING_TAINT, KEPT_TAINT) or taint.key.startswith(_COUNTED)


def _spread_out(levels: int) -> tuple[int, ...]:
    """So many of the thresholds, evenly chosen: with three of six every second one."""
    if levels <= 0:
        return ()
    step = len(THRESHOLDS) / levels
    return tuple(THRESHOLDS[int(step * number)] for number in range(levels))
