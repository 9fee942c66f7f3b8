"""Why pods wait, in words: what the scheduler says of the nodes there are, and what the shard makes of the demand.

Looks at a cluster when a run is over and changes nothing. Every pod that waits is in exactly one row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from bigfleet.model.amounts import spoken_name
from bigfleet.sim.world.cluster import Cluster
from bigfleet.sim.world.pods import Node, PodSet


class Waiting(NamedTuple):
    """Equal pods that wait for the same reason; `longest` is the longest wait among them so far."""

    cluster: str
    workload: str
    priority: int
    pods: int
    longest: int
    why: str
    shard: str


def waiting(
    clusters: Iterable[Cluster], resources: tuple[str, ...], shard: Callable[[str, PodSet], str], end: int
) -> list[Waiting]:
    """Everybody who waits, most important first; `shard` says what the shard makes of an object's demand."""
    pods: Counter[tuple[str, str, int, str, str]] = Counter()
    longest: dict[tuple[str, str, int, str, str], int] = {}
    for cluster in clusters:
        for podset in cluster.waiting():
            why = why_waiting(cluster, podset, resources)
            name = (cluster.name, podset.workload, podset.kind.priority, why, shard(cluster.name, podset))
            pods[name] += podset.waiting_count
            longest[name] = max(longest.get(name, 0), end - podset.waiting[0][0])
    rows = [Waiting(n[0], n[1], n[2], count, longest[n], n[3], n[4]) for n, count in pods.items()]
    return sorted(rows, key=lambda row: (-row.priority, row.cluster, row.workload, row.why))


def why_waiting(cluster: Cluster, podset: PodSet, resources: tuple[str, ...]) -> str:
    """What keeps an object's pods off every node there is."""
    if not cluster.nodes:
        return "The cluster has no node."
    found = Counter(_problem(cluster, podset, node, resources) for node in cluster.nodes.values())
    reasons = [f"{count:,} {problem}" for problem, count in sorted(found.items(), key=lambda each: (-each[1], each[0]))]
    return f"Of {len(cluster.nodes):,} nodes {', '.join(reasons)}."


def _problem(cluster: Cluster, podset: PodSet, node: Node, resources: tuple[str, ...]) -> str:
    kind = podset.kind
    if not cluster.matches(kind, node):
        return "do not match its labels and tolerations"
    pairs = zip(resources, node.free, kind.vector, strict=True)
    if lacking := [spoken_name(name) for name, have, want in pairs if want > have]:
        return f"have too little {' and '.join(lacking)}"
    if problem := cluster.scheduler.keeps_out(podset, node):
        return problem
    if kind.topology_key and podset.anchor not in (None, node.attributes.get(kind.topology_key)):
        return "are not where the rest of its gang is"
    if kind.strict_skew:
        return "are where its spread lets no more of them be"
    return "have room: the scheduler has not had its turn"
