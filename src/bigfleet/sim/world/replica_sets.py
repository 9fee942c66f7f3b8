"""Which pods go when an object is to have fewer, after Kubernetes' ReplicaSet controller.

It sorts once, by how many pods of the object stand together on a node before any is gone, most first, and then by age,
youngest first, where ages are told apart by powers of two only. So nodes that hold equally
many lose equally many, and all of them stay in use; only nodes that held more than the others are emptied. (It draws
lots among equals. Here they take turns: who draws lots empties a few nodes by luck.)
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from bigfleet.sim.world.pods import Node, PodSet


def leavers(podset: PodSet, count: int, now: int) -> Iterator[tuple[Node, int]]:
    """Nodes and how many bound pods each of them loses, so many in all."""

    def standing(node: Node) -> tuple[int, int]:
        return -podset.bound[node], (now - podset.since[node]).bit_length()

    # Those that came last to an object come first in a group, and lose the odd pod.
    newest_first = list(reversed(podset.bound))
    order = sorted(newest_first, key=standing)
    for _, group in groupby(order, standing):
        nodes = list(group)
        gone = min(count, sum(podset.bound[node] for node in nodes))
        each, odd = divmod(gone, len(nodes))
        for place, node in enumerate(nodes):
            if less := each + (place < odd):
                yield node, less
        count -= gone
        if not count:
            return
