"""What counted entries are told, and what is missing of them.

Written from docs/engine.md P41 to P43.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bigfleet.engine.results import Supply, UnitParts, UnmetReason, Verdict
from tests.oracle.demand import Amounts, Demand, added, covers, vector
from tests.oracle.placement.reports import is_seen
from tests.oracle.placement.worth import fits
from tests.oracle.supply import CONFIGURED, FAILED, IDLE, SPECULATIVE, Unit

if TYPE_CHECKING:
    from bigfleet.engine.batches import Conditions
    from bigfleet.engine.policy import Policy
    from tests.oracle.placement.lots import Book
    from tests.oracle.placement.needs import Need
    from tests.oracle.placement.worth import Worth


def units_of(need: Need) -> UnitParts:
    parts = need.parts
    count, running = sum(p.count for p in parts), sum(p.running for p in parts)
    stranded = sum(p.stranded for p in parts)
    return UnitParts(
        count=count,
        running=running,
        room=count - running - stranded,
        stranded=stranded,
        coming=sum(p.coming for p in parts),
        coming_until=max(p.coming_until for p in parts),
        acquired=sum(p.acquired for p in parts),
        awaiting=sum(p.awaiting for p in parts),
        missing=sum(p.deficit for p in parts),
    )


def reason_of(
    need: Need,
    machines: list[Unit],
    demand: Demand,
    book: Book,
    policy: Policy,
    conditions: Conditions,
    is_believed: bool,
    now: int,
) -> UnmetReason:
    cluster, worth = demand.clusters[need.cluster], book.worth
    published = {name for unit in machines for name, amount in unit.shape.allocatable.items() if amount > 0}
    matching = _matching(need, machines)
    free = [unit for unit in matching if unit.state in (IDLE, SPECULATIVE)]
    if need.satisfied:
        return UnmetReason.NONE
    if machines and any(name not in published for name in need.aggregate):
        return UnmetReason.RESOURCE_NOT_PUBLISHED
    if not cluster.connected:
        return UnmetReason.CLUSTER_DISCONNECTED
    if need.done:
        return UnmetReason.AWAITING_DRAIN if any(p.awaiting for p in need.parts) else UnmetReason.AWAITING_NODE
    if not cluster.fresh(policy, now) or not conditions.acquire:
        return UnmetReason.ACQUISITION_HELD
    if not is_believed:
        return UnmetReason.NOT_BELIEVED
    if need.gang and (not need.satisfiable or need.parked):
        return UnmetReason.TOPOLOGY_UNSATISFIABLE
    if not any(unit.state in (IDLE, SPECULATIVE, CONFIGURED) for unit in matching):
        if any(unit.state == FAILED for unit in matching):
            return UnmetReason.SUPPLY_BACKED_OFF
        return UnmetReason.NO_MATCHING_SUPPLY
    if need.victims:
        return UnmetReason.PREEMPTION_EXHAUSTED
    if any(unit.held for unit in free):
        return UnmetReason.SUPPLY_BACKED_OFF
    if any(worth.backed_off(need, unit) for unit in free):
        return UnmetReason.DID_NOT_HELP
    unclaimed = [unit for unit in free if unit.claimant is None]
    if any(worth.risky(need, part, unit) for part in need.parts for unit in unclaimed):
        return UnmetReason.RISK_TOO_HIGH
    if need.spread and (unclaimed or book.usable(need, need.parts[0], book.lots(need.cluster))):
        return UnmetReason.SPREAD_UNSATISFIABLE
    if _one_per_node(need, machines, demand, book):
        return UnmetReason.EXCLUSIVE
    if _only_scattered(need, machines, demand, worth):
        return UnmetReason.FRAGMENTATION
    return UnmetReason.PRIORITY_STARVED


def _one_per_node(need: Need, machines: list[Unit], demand: Demand, book: Book) -> bool:
    """Whether its tokens alone keep a row from room that is there."""
    if need.gang or not need.parts[0].tokens:
        return False
    freely = replace(need.parts[0], tokens=frozenset())
    for unit in machines:
        if unit.cluster == need.cluster and is_seen(unit, demand) and need.matches(unit):
            left = book.worth.left_of(unit)
            if _carries(unit, need) and fits(left, frozenset(), freely, unit) > 0:
                return True
    return bool(book.usable(need, freely, book.lots(need.cluster)))


def _carries(unit: Unit, need: Need) -> bool:
    """Whether a node has a token of the row already."""
    return not need.gang and unit.report is not None and bool(unit.report.tokens & need.parts[0].tokens)


def _only_scattered(need: Need, machines: list[Unit], demand: Demand, worth: Worth) -> bool:
    """Whether what the cluster's nodes have left would do as a sum."""
    left: Amounts = {}
    for unit in machines:
        if unit.cluster == need.cluster and is_seen(unit, demand) and need.matches(unit) and not _carries(unit, need):
            left = added(left, worth.left_of(unit))
    wanted: Amounts = {}
    for part in need.parts:
        wanted = added(wanted, {name: amount * part.deficit for name, amount in part.unit.items()})
    return covers(left, wanted)


def _matching(need: Need, machines: list[Unit]) -> list[Unit]:
    """Machines of any holder that match and fit some part, as published less the cluster's overhead."""
    return [
        unit
        for unit in machines
        if need.matches(unit) and any(covers(_effective(unit, need.overhead), part.unit) for part in need.parts)
    ]


def _effective(unit: Unit, overhead: Amounts) -> Amounts:
    return {name: max(0, amount - overhead.get(name, 0)) for name, amount in unit.shape.allocatable.items()}


def unit_verdict(
    need: Need,
    machines: list[Unit],
    demand: Demand,
    ages: dict[tuple[str, str, str, str], int],
    policy: Policy,
    reason: UnmetReason,
    now: int,
) -> Verdict:
    gang_key = (need.cluster, need.profile.fingerprint, need.group)
    since = demand.parked_since.get(gang_key) if need.gang else None
    deficit: Amounts = {}
    for part in need.parts:
        deficit = added(deficit, {name: amount * part.missing_after_assign for name, amount in part.unit.items()})
    freed: Amounts = {}
    for unit in need.victims:
        freed = added(freed, _effective(unit, need.overhead))
    keys = [(*gang_key, vector(part.unit).canonical) for part in need.parts]
    return Verdict(
        key=need.key,
        priority=need.profile.priority,
        arrival=need.arrival,
        satisfied=need.satisfied,
        deficit=vector(deficit),
        claimed=len(need.reopens) + len(need.taken) + len(need.bootstraps) + len(need.provisions),
        bootstraps=len(need.bootstraps),
        provisions=len(need.provisions),
        domain=need.domain,
        satisfiable=need.satisfiable,
        parked=need.parked,
        parked_age=(now - since) // policy.cycle_ns if since is not None else 0,
        unmet_age=max((ages.get(key, 0) for key in keys), default=0),
        reason=reason,
        supply=None if need.satisfied else _supply(_matching(need, machines), policy.supply_count_cap),
        victims=len(need.victims),
        freed=vector(freed),
        candidates=(),
        units=units_of(need),
    )


def _supply(matching: list[Unit], cap: int) -> Supply:
    idle, slots, bound = (sum(u.state == state for u in matching) for state in (IDLE, SPECULATIVE, CONFIGURED))
    return Supply(min(idle, cap), min(slots, cap), min(bound, cap), max(idle, slots, bound) > cap)
