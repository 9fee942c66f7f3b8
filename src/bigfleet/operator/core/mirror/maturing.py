"""Which pods have become old: what consolidation may evict is a share of them, so each is counted once, where it stood.

Pods that stand on a node are kept by the instant at which they are old, if they still stand then. Nobody looks more
often because of it than reports that tell other amounts go.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from bigfleet.operator.core.events import SECOND
from bigfleet.operator.core.mirror.facts import Origin

if TYPE_CHECKING:
    from bigfleet.operator.core.mirror.nodes import Node
    from bigfleet.operator.core.mirror.pods import Pod

OLD_AFTER = 15 * 60 * SECOND
INTERVAL = 30 * SECOND


class Maturing:
    """Pods that are not old yet, by the instant at which they will be."""

    def __init__(self, old_after: int) -> None:
        self._old_after = old_after
        self._due: list[tuple[int, str]] = []
        self._counted = 0

    def stands(self, pod: Pod) -> None:
        """The pod has come to stand on a node."""
        if not pod.matured and pod.kind.shape.origin is not Origin.DAEMON:
            heapq.heappush(self._due, (pod.since + self._old_after, pod.uid))

    def count(self, pods: Mapping[str, Pod], now: int) -> Iterator[Node]:
        """Nodes on which pods have become old since the last time."""
        self._counted = now
        while self._due and self._due[0][0] <= now:
            pod = pods.get(heapq.heappop(self._due)[1])
            if pod is None or pod.matured or pod.host is None or pod.since + self._old_after > now:
                continue
            pod.matured = True
            pod.host.matured += 1
            yield pod.host

    def next_timer(self) -> int | None:
        """When to count again although nothing was told."""
        return max(self._due[0][0], self._counted + INTERVAL) if self._due else None
