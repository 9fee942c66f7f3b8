"""Whose pods need another node: nodes we drain, that the provider lost, or that have not been ready for too long.

When many nodes stop being ready together and the provider lost none, it is the network between them and the API
server: their pods run on, and buying for all of them would be the worst possible answer.
"""

from __future__ import annotations

from collections.abc import Iterable

from bigfleet.operator.core.events import SECOND
from bigfleet.operator.core.mirror.nodes import Node

NOT_READY_GRACE = 5 * 60 * SECOND
TOGETHER_WITHIN = 5 * 60 * SECOND
TOGETHER_AT_LEAST = 3
TOGETHER_SHARE = 0.20


def is_away(node: Node, not_ready: Iterable[Node], node_count: int, lost: int, now: int) -> bool:
    """`not_ready` are all nodes that are not ready, `lost` how many the provider lost."""
    if node.draining or node.lost:
        return True
    since = node.not_ready_since
    if since is None or now - since < NOT_READY_GRACE:
        return False
    if lost:
        return True
    together = sum(
        1
        for each in not_ready
        if each.not_ready_since is not None and abs(each.not_ready_since - since) <= TOGETHER_WITHIN
    )
    return not (together >= TOGETHER_AT_LEAST and together > TOGETHER_SHARE * node_count)


def next_grace(not_ready: Iterable[Node], now: int) -> int | None:
    """When the next grace is over."""
    ends = (each.not_ready_since + NOT_READY_GRACE for each in not_ready if each.not_ready_since is not None)
    return min((end for end in ends if end > now), default=None)
