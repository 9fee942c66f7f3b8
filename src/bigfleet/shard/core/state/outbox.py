"""What one session still has to be told: keyed lanes, rendered when they are sent, never a growing queue.

Order: acknowledgements, then instructions and requests, then the replay after Hello and its end, then node states,
then capacity hints. Only the latest of a key is kept; the first two lanes are never dropped and are bounded by the
operations of the cluster. Outliving the session is not its business: a new session starts with what is still true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from bigfleet.shard.contract.frames import (
    Acknowledgement,
    AvailableCapacity,
    BootstrapRequest,
    Frame,
    NodeClosing,
    NodeLost,
    NodeState,
    ReclaimCancel,
    ReclaimInstruction,
    ResyncEnd,
)
from bigfleet.shard.core.state.enum_aliases import DRAINING

T = TypeVar("T")


class Renderer(NamedTuple):
    """Turns keys into frames as things stand at the moment of sending."""

    node: Callable[[str, str, bool], NodeState]
    hint: Callable[[str, str], AvailableCapacity | None]
    members: Callable[[str], tuple[str, ...]]
    still_wanted: Callable[[BootstrapRequest], bool]


class Outbox:
    """Frames owed to one session."""

    __slots__ = (
        "_acks",
        "_cancels",
        "_closings",
        "_forgot",
        "_hints",
        "_knows_end",
        "_limit",
        "_lost",
        "_nodes",
        "_reclaims",
        "_replay",
        "_requests",
        "_resync_end",
    )

    def __init__(self, limit: int, *, knows_end: bool) -> None:
        self._limit = limit
        # Whether the peer can be told that a replay was all there is.
        self._knows_end = knows_end
        self._acks: dict[str, Acknowledgement] = {}
        self._requests: dict[str, BootstrapRequest] = {}
        self._reclaims: dict[str, ReclaimInstruction] = {}
        self._cancels: dict[str, ReclaimCancel] = {}
        # Machines the provider lost; nodes to keep new pods off (True) or to let them on again.
        self._lost: dict[str, None] = {}
        self._closings: dict[str, bool] = {}
        self._replay: list[str] = []
        self._resync_end = False
        # Machine → whether its Draining has not been told yet: an operator must see it before it sees the end.
        self._nodes: dict[str, bool] = {}
        self._hints: dict[str, None] = {}
        self._forgot = False

    def __len__(self) -> int:
        return self.essential + len(self._replay) + len(self._nodes) + len(self._hints)

    @property
    def essential(self) -> int:
        """How many frames wait that may never be dropped."""
        frames = len(self._acks) + len(self._requests) + len(self._reclaims) + len(self._cancels)
        return frames + len(self._lost) + len(self._closings) + int(self._resync_end)

    @property
    def coalesced(self) -> int:
        return len(self._nodes) + len(self._hints)

    def acknowledge(self, ack: Acknowledgement) -> None:
        self._acks[ack.echo] = ack

    def request(self, machine: str, request: BootstrapRequest) -> None:
        self._requests[machine] = request

    def reclaim(self, machine: str, instruction: ReclaimInstruction) -> None:
        self._cancels.pop(machine, None)
        self._reclaims[machine] = instruction

    def cancel(self, machine: str, cancel: ReclaimCancel) -> None:
        """Take a drain back. An earlier stream may have carried the instruction, so the cancel goes out in any case."""
        self._reclaims.pop(machine, None)
        self._cancels[machine] = cancel

    def lost(self, machine: str) -> None:
        self._closings.pop(machine, None)
        self._lost[machine] = None

    def closing(self, machine: str, *, closing: bool) -> None:
        self._closings[machine] = closing

    def replay(self, machines: Iterable[str]) -> None:
        """Tell the state of all these machines and, where the peer knows it, that this was all."""
        self._replay = list(machines)
        self._replay.reverse()
        self._resync_end = self._knows_end

    def node(self, machine: str, *, draining: bool) -> None:
        """The machine's state changed. When there is no room the oldest entry goes, and all is told again later."""
        self._nodes[machine] = draining or self._nodes.pop(machine, False)
        if self.coalesced > self._limit:
            lane = self._hints or self._nodes
            del lane[next(iter(lane))]
            self._forgot = True

    def hint(self, fingerprint: str) -> None:
        if self.coalesced < self._limit:
            self._hints[fingerprint] = None

    def take(
        self, cluster: str, limit: int, render: Renderer, sent: Callable[[AvailableCapacity], None]
    ) -> list[Frame]:
        """The next frames in order, about `limit` of them; what is no longer true is skipped."""
        out: list[Frame] = []
        if self._forgot:
            self._forgot = False
            self.replay(render.members(cluster))
        while self._acks and len(out) < limit:
            out.append(_pop(self._acks))
        while self._cancels and len(out) < limit:
            out.append(_pop(self._cancels))
        while self._reclaims and len(out) < limit:
            out.append(_pop(self._reclaims))
        while self._lost and len(out) < limit:
            machine = next(iter(self._lost))
            del self._lost[machine]
            out.append(NodeLost(machine))
        while self._closings and len(out) < limit:
            machine = next(iter(self._closings))
            out.append(NodeClosing(machine, self._closings.pop(machine)))
        while self._requests and len(out) < limit:
            request = _pop(self._requests)
            if render.still_wanted(request):
                out.append(request)
        while self._replay and len(out) < limit:
            out.append(render.node(cluster, self._replay.pop(), False))
        if self._resync_end and not self._replay and len(out) < limit:
            self._resync_end = False
            out.append(ResyncEnd(render.members(cluster)))
        while self._nodes and len(out) < limit:
            machine = next(iter(self._nodes))
            drained = self._nodes.pop(machine)
            current = render.node(cluster, machine, False)
            if drained and current.state != DRAINING:
                out.append(render.node(cluster, machine, True))
            out.append(current)
        while self._hints and len(out) < limit:
            fingerprint = next(iter(self._hints))
            del self._hints[fingerprint]
            hint = render.hint(cluster, fingerprint)
            if hint is not None:
                out.append(hint)
                sent(hint)
        return out

    def validate(self) -> None:
        assert self.coalesced <= self._limit, f"outbox holds {self.coalesced} coalesced frames, limit {self._limit}"
        assert not self._cancels.keys() & self._reclaims.keys(), "a drain is both ordered and cancelled"


def _pop(lane: dict[str, T]) -> T:
    return lane.pop(next(iter(lane)))
