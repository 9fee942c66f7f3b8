"""Shortfalls and verdicts: what every entry is told about its fate.

Written from docs/engine.md §7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bigfleet.engine.results import AvailableCapacity, NeedKey, Shortfall, Supply, UnmetReason, Verdict
from tests.oracle.demand import Amounts, Demand, added, vector
from tests.oracle.entries import Entry
from tests.oracle.placement.needs import Need, Portion
from tests.oracle.supply import CONFIGURED, FAILED, IDLE, SPECULATIVE, Unit

if TYPE_CHECKING:
    from bigfleet.engine.batches import Conditions
    from bigfleet.engine.policy import Policy


def shortfalls_of(
    entries: list[Entry | Need], reasons: dict[Need, UnmetReason], demand: Demand, policy: Policy, now: int
) -> list[Shortfall]:
    """The ledger after this step; runs that ended are forgotten."""
    since: dict[tuple[str, str, str, str], int] = {}
    found = []
    for entry in entries:
        for part in entry.parts:
            if part.deficit == 0 if isinstance(part, Portion) else part.done:
                continue
            unit = vector(part.row.min_unit).canonical
            key = (entry.cluster, entry.profile.fingerprint, entry.group, unit)
            since[key] = demand.shortfall_since.get(key, now)
            told: dict[str, Any] = {}
            if isinstance(entry, Need):
                before = [at for other, at in demand.shortfall_since.items() if other[:3] == key[:3]]
                since[key] = min(before, default=now)
                missing = {name: amount * part.deficit for name, amount in part.unit.items()}
                coming = part.coming + part.acquired + part.awaiting
                told = {"units": part.deficit, "coming": coming, "cause": reasons[entry]}
            found.append(
                Shortfall(
                    key=NeedKey(*key),
                    priority=entry.profile.priority,
                    deficit=vector(missing if isinstance(entry, Need) else part.remaining),
                    since=since[key],
                    age=(now - since[key]) // policy.cycle_ns + 1,
                    escalated=now - since[key] >= policy.escalate_after_ns,
                    topology_constrained=entry.gang or entry.spread is not None,
                    **told,
                )
            )
    demand.shortfall_since = since
    found.sort(key=lambda s: (-s.priority, -s.age, *(text.encode() for text in _texts(s.key))))
    return found


def _texts(key: NeedKey) -> tuple[str, str, str, str]:
    return (key.cluster, key.fingerprint, key.group, key.min_unit)


def verdict_of(
    entry: Entry,
    machines: list[Unit],
    demand: Demand,
    ages: dict[tuple[str, str, str, str], int],
    policy: Policy,
    conditions: Conditions,
    now: int,
) -> Verdict:
    gang_key = (entry.cluster, entry.profile.fingerprint, entry.group)
    since = demand.parked_since.get(gang_key) if entry.gang else None
    keys = [(*gang_key, vector(part.row.min_unit).canonical) for part in entry.parts]
    freed: Amounts = {}
    for unit in entry.victims:
        freed = added(freed, entry.effective(unit))
    matching = [u for u in machines if entry.eligible(u)]
    return Verdict(
        key=entry.key,
        priority=entry.profile.priority,
        arrival=entry.arrival,
        satisfied=entry.satisfied,
        deficit=vector(entry.deficit),
        claimed=len(entry.credited) + len(entry.bootstraps) + len(entry.provisions),
        bootstraps=len(entry.bootstraps),
        provisions=len(entry.provisions),
        domain=entry.domain,
        satisfiable=entry.satisfiable,
        parked=entry.parked,
        parked_age=(now - since) // policy.cycle_ns if since is not None else 0,
        unmet_age=max((ages.get(key, 0) for key in keys), default=0),
        reason=_reason(entry, machines, matching, demand, conditions),
        supply=None if entry.satisfied else _supply(matching, policy.supply_count_cap),
        victims=len(entry.victims),
        freed=vector(freed),
        candidates=entry.candidates,  # type: ignore[arg-type]
    )


def _supply(matching: list[Unit], cap: int) -> Supply:
    idle, slots, bound = (sum(u.state == state for u in matching) for state in (IDLE, SPECULATIVE, CONFIGURED))
    return Supply(min(idle, cap), min(slots, cap), min(bound, cap), max(idle, slots, bound) > cap)


def _reason(
    entry: Entry, machines: list[Unit], matching: list[Unit], demand: Demand, conditions: Conditions
) -> UnmetReason:
    claimed = entry.credited or entry.bootstraps or entry.provisions
    free = [u for u in matching if u.state in (IDLE, SPECULATIVE)]
    published = {name for unit in machines for name, amount in unit.shape.allocatable.items() if amount > 0}
    if entry.satisfied:
        return UnmetReason.NONE
    if machines and any(amount > 0 and name not in published for name, amount in entry.aggregate.items()):
        return UnmetReason.RESOURCE_NOT_PUBLISHED
    if not demand.clusters[entry.cluster].connected:
        return UnmetReason.CLUSTER_DISCONNECTED
    if not conditions.acquire:
        return UnmetReason.ACQUISITION_HELD
    if entry.done:
        return UnmetReason.AWAITING_DRAIN
    if entry.gang and (entry.domain is None or not entry.satisfiable or entry.parked):
        return UnmetReason.TOPOLOGY_UNSATISFIABLE
    if not claimed and not any(u.state in (IDLE, SPECULATIVE, CONFIGURED) for u in matching):
        if any(u.state == FAILED for u in matching):
            return UnmetReason.SUPPLY_BACKED_OFF
        return UnmetReason.NO_MATCHING_SUPPLY
    if entry.victims:
        return UnmetReason.PREEMPTION_EXHAUSTED
    if any(u.held for u in free):
        return UnmetReason.SUPPLY_BACKED_OFF
    if entry.spread and any(u.claimant is None for u in free):
        return UnmetReason.SPREAD_UNSATISFIABLE
    return UnmetReason.PRIORITY_STARVED


def available_of(entries: list[Entry], machines: list[Unit]) -> list[AvailableCapacity]:
    """The hint clusters get per fingerprint, in (cluster, fingerprint) order."""
    hints = {}
    for entry in entries:
        pool = [u for u in machines if u.matches(entry.profile)]
        idle = [u.shape.price for u in pool if u.state == IDLE]
        slots = sum(u.state == SPECULATIVE for u in pool)
        confidence = "HIGH" if idle else "MEDIUM" if slots else "NONE"
        hints[entry.cluster, entry.profile.fingerprint] = AvailableCapacity(
            entry.cluster, entry.profile.fingerprint, len(idle) + slots, confidence, min(idle, default=0.0)
        )
    return [hints[key] for key in sorted(hints, key=lambda key: (key[0].encode(), key[1].encode()))]
