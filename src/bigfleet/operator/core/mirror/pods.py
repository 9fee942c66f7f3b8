"""Pods and requests as the mirror keeps them: one small record each, everything else is shared by kind; who of the pods
waits, each kind's from the oldest on; and which have become old."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING

from bigfleet.operator.core.events import SECOND
from bigfleet.operator.core.mirror.facts import Labels, Origin

if TYPE_CHECKING:
    from bigfleet.operator.core.mirror.kinds import Kind
    from bigfleet.operator.core.mirror.nodes import Node
    from bigfleet.operator.core.rows import RowBook


OLD_AFTER = 15 * 60 * SECOND
INTERVAL = 30 * SECOND
_AGE = attrgetter("age_key")


class Pod:
    """One pod. `host` is the node it counts on; without one it waits or its node is not known yet."""

    __slots__ = (
        "host",
        "kind",
        "labels",
        "matured",
        "node",
        "nominated",
        "request",
        "room_since",
        "row",
        "running",
        "since",
        "terminating",
        "uid",
        "waiting",
    )

    def __init__(self, uid: str, kind: Kind) -> None:
        self.uid = uid
        self.kind = kind
        self.labels: Labels = ()
        self.node = ""
        self.nominated = ""
        self.since = 0
        self.terminating = False
        self.request: Request | None = None
        # The row that counts it; None when nothing asks for it or enough others stand for its request.
        self.row: RowBook | None = None
        self.host: Node | None = None
        self.waiting = False
        # Bound to a node that is not away.
        self.running = False
        # Counted as one that has become old on a node.
        self.matured = False
        # Since when the mirror has had room for it without a break.
        self.room_since: int | None = None

    @property
    def age_key(self) -> tuple[int, str]:
        return self.since, self.uid


class Request:
    """So many units of a row; `pods` stand for some of them, the rest are placeholders."""

    __slots__ = ("kind", "labels", "name", "pods", "row", "units")

    def __init__(self, name: str) -> None:
        self.name = name
        self.units = 0
        self.labels: Labels = ()
        self.kind: Kind | None = None
        self.row: RowBook | None = None
        self.pods: list[Pod] = []

    @property
    def placeholders(self) -> int:
        return max(0, self.units - len(self.pods))


class Maturing:
    """Pods that stand on a node and are not old yet, by the instant at which they will be if they still stand then.

    What consolidation may evict is a share of those who become old, so each is counted once, where it stood. Nobody
    looks more often because of it than reports that tell other amounts go.
    """

    def __init__(self, old_after: int) -> None:
        self._old_after = old_after
        # Whoever came to be at the same instant (to the second, as API servers write it) becomes old together.
        self._due: dict[int, list[str]] = {}
        self._instants: list[int] = []
        self._counted = 0

    def stands(self, pod: Pod) -> None:
        """The pod has come to stand on a node."""
        if not pod.matured and pod.kind.shape.origin is not Origin.DAEMON:
            due = pod.since + self._old_after
            if due not in self._due:
                self._due[due] = []
                heapq.heappush(self._instants, due)
            self._due[due].append(pod.uid)

    def count(self, pods: Mapping[str, Pod], now: int) -> Iterator[Node]:
        """Nodes on which pods have become old since the last time."""
        self._counted = now
        while self._instants and self._instants[0] <= now:
            for uid in self._due.pop(heapq.heappop(self._instants)):
                pod = pods.get(uid)
                if pod is None or pod.matured or pod.host is None or pod.since + self._old_after > now:
                    continue
                pod.matured = True
                pod.host.matured += 1
                yield pod.host

    def next_timer(self) -> int | None:
        """When to count again although nothing was told."""
        return max(self._instants[0], self._counted + INTERVAL) if self._instants else None


class Waitlist:
    """Kinds that wait, and pods that the scheduler makes room for on a node of its choice."""

    def __init__(self) -> None:
        self.kinds: dict[Kind, None] = {}
        self.nominated: dict[Pod, None] = {}

    def add(self, pod: Pod) -> None:
        pod.waiting = True
        waiting = pod.kind.waiting
        if not waiting or waiting[-1].age_key <= pod.age_key:
            waiting.append(pod)
        else:
            insort(waiting, pod, key=_AGE)
        self.kinds[pod.kind] = None
        if pod.nominated:
            self.nominated[pod] = None

    def remove(self, pod: Pod) -> None:
        pod.waiting = False
        waiting = pod.kind.waiting
        del waiting[bisect_left(waiting, pod.age_key, key=_AGE)]
        self.settle(pod.kind)
        self.nominated.pop(pod, None)

    def settle(self, kind: Kind) -> None:
        """Let go of a kind that nobody waits for."""
        if not kind.waiting and not kind.placeholders:
            self.kinds.pop(kind, None)
