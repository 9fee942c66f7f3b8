"""Reclaim, release and the rails: what is given back, how fast, and which actions leave the step.

Written from docs/engine.md §5 and §6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.oracle.judging import cap_size, idle_hold
from tests.oracle.supply import CONFIGURED, IDLE, Block, Unit

if TYPE_CHECKING:
    from bigfleet.engine.policy import Policy
    from tests.oracle.demand import Cluster, Demand


def note_excess(machines: dict[str, Unit], demand: Demand, now: int) -> None:
    """Starts and ends the runs a reclaim hold is measured by."""
    for unit in machines.values():
        cluster = demand.clusters.get(unit.cluster)
        by_sums = cluster is not None and cluster.ready and not cluster.reporting
        if unit.state == CONFIGURED and unit.claimant is None and by_sums:
            unit.excess_since = now if unit.excess_since is None else unit.excess_since
        else:
            unit.excess_since = None


def reclaimable(blocks: list[Block], demand: Demand, policy: Policy, now: int) -> dict[str, list[Unit]]:
    """Per ready cluster in text order what may go, in the order it goes, before the cap."""
    result: dict[str, list[Unit]] = {}
    for name in sorted(demand.clusters, key=str.encode):
        cluster = demand.clusters[name]
        if not cluster.ready or cluster.reporting or cluster.mode_hold(policy, now):
            continue
        excess = [
            members
            for block in blocks
            if block.head.state == CONFIGURED and block.head.cluster == name
            if (members := [u for u in block.members if u.claimant is None and u.preemptor is None])
        ]
        excess.sort(key=lambda members: (members[0].shape.price, members[0].reclamation, members[0].id.encode()))
        result[name] = [
            unit
            for members in excess
            for unit in members
            if unit.excess_since is not None and now - unit.excess_since >= policy.reclaim_hold_ns
        ]
    return result


def refill(machines: dict[str, Unit], demand: Demand, policy: Policy, now: int) -> None:
    """Brings every ready cluster's bucket of reclaims up to this step."""
    for name, cluster in demand.clusters.items():
        if policy.reclaim_cap_fraction == 0:
            cluster.tokens = None
        if policy.reclaim_cap_fraction == 0 or not cluster.ready:
            continue
        configured = sum(unit.state == CONFIGURED and unit.cluster == name for unit in machines.values())
        size = cap_size(policy, configured)
        full = size * policy.reclaim_cap_window_ns
        if cluster.tokens is None:
            cluster.tokens = full
        else:
            cluster.tokens = min(full, cluster.tokens + size * (now - cluster.tokens_at))
        cluster.tokens_at = now


def allowed(cluster: Cluster, policy: Policy, wanted: int) -> int:
    if policy.reclaim_cap_fraction == 0:
        return wanted
    assert cluster.tokens is not None
    return min(wanted, cluster.tokens // policy.reclaim_cap_window_ns)


def spend(cluster: Cluster, policy: Policy, reclaims: int) -> None:
    if policy.reclaim_cap_fraction > 0 and cluster.tokens is not None:
        cluster.tokens -= reclaims * policy.reclaim_cap_window_ns


def releasable(machines: dict[str, Unit], policy: Policy, now: int) -> list[Unit]:
    """Idle elastic machines nobody wanted for long enough, in id order."""
    result = []
    for _, unit in sorted(machines.items(), key=lambda item: item[0].encode()):
        if unit.state != IDLE or unit.claimant is not None or unit.moving:
            continue
        hold = idle_hold(policy, unit.shape.provider, unit.shape.capacity_type)
        if hold > 0 and unit.idle_since is not None and now - unit.idle_since >= hold:
            result.append(unit)
    return result


def shares(sizes: tuple[int, int, int], maximum: int) -> list[int]:
    """How many of each phase are kept under a maximum number of actions."""
    kept = [min(size, maximum // 3) for size in sizes]
    left = maximum - sum(kept)
    for phase, size in enumerate(sizes):
        more = min(size - kept[phase], left)
        kept[phase] += more
        left -= more
    return kept
