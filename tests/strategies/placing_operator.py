"""A cluster that reports placement, around the shard core of `shard_world`: nodes boot, a scheduler binds pods.

Written from the wire contract, without a line of the operator's own core: pods have a size in cores and nothing else,
the first node with room takes one, and every look is told in full. Faults are plain attributes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bigfleet.model.names import PLACEMENT
from bigfleet.shard.contract import events as ev
from tests.strategies.placed import counted, pods
from tests.strategies.shard_world import ALL, Operator, S, World

LOOK = 10.0
OLD = 900.0


@dataclass(eq=False)
class Pod:
    cores: int
    node: str = ""
    began: int = 0
    old: bool = False


@dataclass(eq=False)
class Node:
    ready_at: int
    closing_since: int = 0
    draining: bool = False
    matured: int = 0


@dataclass
class Refusals:
    """Machines whose voluntary drain is refused, and those it was refused for."""

    of: set[str] = field(default_factory=set)
    said: list[str] = field(default_factory=list)


class PlacingOperator(Operator):
    """Looks every ten seconds; a node is ready two seconds after its machine is Configured."""

    def __init__(self, world: World, cluster: str) -> None:
        super().__init__(world, cluster, ALL | {PLACEMENT})
        world.operators[cluster] = self
        self.pods: list[Pod] = []
        self.nodes: dict[str, Node] = {}
        self.refusals = Refusals()
        self.version = 0
        self.boot = 2.0
        # Pods that have stood on their node for so long are old.
        self.old_after = OLD
        # How often it looks, and how long its rows are throttled; reports go at once.
        self.every: float = LOOK
        self.rows_every = 0.0
        self._rows_at = -1
        self.never_ready: set[str] = set()
        self.unplaceable = False
        # Machines whose pods run on until they have room elsewhere, with the instruction that lets them.
        self.held: dict[str, ev.ReclaimInstruction] = {}
        # Whether it opens a closing node itself for a pod that fits only there.
        self.reopens = True
        # What every pod asks for besides its cores, as `builders.need` has it; with a token, one goes on a node.
        self.asks: dict[str, Any] = {}
        self.exclusive: tuple[str, ...] = ()
        self._said: object = None
        self.profile = pods(cluster, 1, cpu=1).row.profile.fingerprint
        self.connect()
        world.after(0.5, self._look)

    def start(self, count: int, cores: int) -> None:
        self.pods += [Pod(cores) for _ in range(count)]

    def stop(self, count: int, cores: int) -> None:
        for pod in [pod for pod in self.pods if pod.cores == cores][:count]:
            self.pods.remove(pod)

    @property
    def waiting(self) -> list[Pod]:
        return [pod for pod in self.pods if not pod.node]

    def on(self, machine: str) -> list[Pod]:
        return [pod for pod in self.pods if pod.node == machine]

    def receive(self, frame: ev.Frame) -> None:
        match frame:
            case ev.NodeState():
                self._node(frame)
            case ev.NodeLost():
                self.frames.append(frame)
                self._gone(frame.machine)
                return
            case ev.NodeClosing():
                self.frames.append(frame)
                if frame.machine in self.nodes:
                    self.nodes[frame.machine].closing_since = self.world.now if frame.closing else 0
                return
            case ev.ReclaimInstruction() if frame.voluntary and set(frame.nodes) & self.refusals.of:
                self.frames.append(frame)
                self.refusals.said += frame.nodes
                for machine in frame.nodes:
                    self._reply(self.session, ev.DrainReported(self.session, frame.instruction_id, machine, "refused"))
                return
            case ev.ReclaimInstruction() if frame.room_within_seconds and set(frame.nodes) <= self.nodes.keys():
                self.frames.append(frame)
                self._reply(self.session, ev.ReclaimAcked(self.session, frame.instruction_id, len(frame.nodes)))
                for machine in frame.nodes:
                    self._hold(machine, frame)
                return
            case ev.ReclaimInstruction():
                for machine in frame.nodes:
                    self._leave(machine)
            case ev.ReclaimCancel():
                self.held = {m: each for m, each in self.held.items() if each.instruction_id != frame.instruction_id}
                for machine, instruction in self.draining.items():
                    if instruction == frame.instruction_id and machine in self.nodes:
                        self.nodes[machine].draining = False
            case _:
                pass
        super().receive(frame)

    def _leave(self, machine: str) -> None:
        self.held.pop(machine, None)
        if machine in self.nodes:
            self.nodes[machine].draining = True
        for pod in self.on(machine):
            pod.node, pod.old = "", False  # what takes its place is another pod

    def _hold(self, machine: str, frame: ev.ReclaimInstruction) -> None:
        self.nodes[machine].draining = True
        self.held[machine] = frame
        self.draining[machine] = frame.instruction_id
        self.world.after(frame.room_within_seconds, lambda: self._evict(machine, frame))

    def _evict(self, machine: str, frame: ev.ReclaimInstruction) -> None:
        if self.held.get(machine) is frame:
            self._leave(machine)
            del self.draining[machine]
            self._drain(frame, machine)

    def _node(self, frame: ev.NodeState) -> None:
        if frame.state == S.CONFIGURED and frame.machine not in self.nodes:
            if frame.machine not in self.never_ready:
                self.nodes[frame.machine] = Node(self.world.now + round(self.boot * 1e9))
        elif frame.state in (S.IDLE, S.SPECULATIVE, S.FAILED):
            self._gone(frame.machine)

    def _gone(self, machine: str) -> None:
        self.held.pop(machine, None)
        if self.nodes.pop(machine, None) is not None:
            for pod in self.on(machine):
                pod.node, pod.old = "", False  # what takes its place is another pod

    def _free(self, machine: str) -> int:
        shape = self.world.provider.units[machine].shape
        return shape.allocatable.get("cpu") // 1000 - sum(pod.cores for pod in self.on(machine))

    def _bind(self) -> None:
        for pod in sorted(self.waiting, key=lambda pod: -pod.cores):
            for machine, node in sorted(self.nodes.items()):
                open_ = not node.closing_since and not node.draining and node.ready_at <= self.world.now
                taken = bool(self.exclusive) and bool(self.on(machine))
                if open_ and not taken and not self.unplaceable and self._free(machine) >= pod.cores:
                    pod.node, pod.began = machine, self.world.now
                    break
            else:
                self._reopen_for(pod)

    def _reopen_for(self, pod: Pod) -> None:
        for machine, node in sorted(self.nodes.items()):
            if self.reopens and node.closing_since and not node.draining and self._free(machine) >= pod.cores:
                node.closing_since = 0
                pod.node, pod.began = machine, self.world.now
                return

    def look(self) -> None:
        """Bind what can be bound and tell everything: nodes first."""
        for machine, frame in list(self.held.items()):
            if self._removable(machine):
                self._evict(machine, frame)
        self._bind()
        for pod in self.pods:
            if pod.node and not pod.old and self.world.now - pod.began >= self.old_after * 1e9:
                pod.old = True
                self.nodes[pod.node].matured += 1
        self.version += 1
        for machine in sorted(self.nodes):
            self._reply(self.session, self._report(machine))
        if self._rows_at >= 0 and self.world.now < self._rows_at + self.rows_every * 1e9:
            return
        self._rows_at = self.world.now
        said = tuple(sorted((pod.cores, self._runs(pod)) for pod in self.pods))
        body = None
        if said != self._said or self.session != self._said_on:
            sizes = sorted({pod.cores for pod in self.pods})
            rows = [self._row(cores) for cores in sizes]
            body = counted(self.cluster, *rows, version=self.version)
            self._said, self._said_on = said, self.session
        self.rollup = body
        if self.session:
            self.world.post(
                ev.RollupReceived(
                    self.session,
                    self.cluster,
                    self.world.now,
                    body,
                    unchanged=body is None,
                    mirror_version=self.version,
                )
            )

    _said_on = 0

    def _row(self, cores: int):  # type: ignore[no-untyped-def]
        mine = [pod for pod in self.pods if pod.cores == cores]
        return pods(
            self.cluster,
            len(mine),
            running=sum(map(self._runs, mine)),
            cpu=cores,
            exclusive=self.exclusive,
            **self.asks,
        )

    def _runs(self, pod: Pod) -> bool:
        """Whether it runs where it can stay."""
        return pod.node != "" and pod.node not in self.held

    def _report(self, machine: str) -> ev.NodeReported:
        node, here = self.nodes[machine], self.on(machine)
        used = sum(pod.cores for pod in here)
        return ev.NodeReported(
            self.session,
            machine,
            machine,
            ready=node.ready_at <= self.world.now,
            empty=not here,
            removable=bool(here) and self._removable(machine),
            used=(("cpu", used * 1000), ("pods", len(here))) if here else (),
            reclamation_dollars=0.005 * len(here),
            profiles=(self.profile,) if here else (),
            closing_since=node.closing_since,
            mirror_version=self.version,
            matured=node.matured,
            exclusive=self.exclusive if here else (),
        )

    def _removable(self, machine: str) -> bool:
        left = {
            other: self._free(other)
            for other, node in self.nodes.items()
            if other != machine and not node.closing_since and not node.draining and node.ready_at <= self.world.now
        }
        for pod in sorted(self.on(machine), key=lambda pod: -pod.cores):
            room = next((other for other in sorted(left) if left[other] >= pod.cores), None)
            if room is None:
                return False
            left[room] -= pod.cores
        return True

    def _look(self) -> None:
        if self.session:
            self.look()
        self.world.after(self.every, self._look)
