"""What a decision beat, by name: the machine that would have been taken otherwise, or the need that had to give way.

The runner-up is the next kind in the order the engine takes free machines in: of a sum by price and risk, of pods by
what each of them costs there, of a spread inside the domain whose turn it was; of a gang it is the next domain that
could hold all of it. What rides along is not counted: it is the next best for this row alone. Tells; decides nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from bigfleet.engine.results import Action, ActionKind, NeedKey, Reason
from bigfleet.model.names import HOSTNAME_LABEL
from bigfleet.model.resources import Resources
from bigfleet.shard.core.machines.matching import attribute, parse_canonical, shape_serves
from bigfleet.shard.core.state.backoff import kind_of
from bigfleet.shard.core.state.enum_aliases import IDLE, SPECULATIVE

if TYPE_CHECKING:
    from bigfleet.engine.batches import Shape
    from bigfleet.model.profile import Profile
    from bigfleet.shard.core.clusters.demand import Demand
    from bigfleet.shard.core.clusters.parts import Part
    from bigfleet.shard.core.clusters.placement import Placement
    from bigfleet.shard.core.state.fleet import Record
    from bigfleet.shard.core.state.state import ShardState

# Kinds that are looked at for one need, and in one step: telling must not cost more than deciding. Decisions beyond it
# say which kind of alternative they beat.
_LOOKED_AT = 200
_LOOKS = 10_000
_KEPT = {
    ActionKind.RECLAIM: "keeping it at {price}: its cluster is served without it",
    ActionKind.DELETE: "keeping it idle at {price}: nobody asked for it in time",
}
NO_OTHER = "nothing else that fits"
# Free kinds by what they cost a need: cost, provider, instance type, zone, shape.
_Ranked = list[tuple[float, str, str, str, "Shape"]]
# Kinds with free machines: cost, shape, how many.
_Kinds = list[tuple[float, "Shape", int]]


class RunnersUp:
    """Asked about the actions of one step; `begin` comes before the first of them."""

    def __init__(self, state: ShardState, demand: Demand, placement: Placement) -> None:
        self._state = state
        self._demand = demand
        self._placement = placement
        self._free: dict[int, list[Shape]] | None = None
        self._ranked: dict[tuple[int, float], _Ranked] = {}
        self._told: dict[tuple[object, ...], str] = {}
        self._looks = _LOOKS
        self._barred: Collection[str] = ()
        self._resting: Counter[tuple[int, int]] | None = None

    def begin(self, barred: Collection[str] = ()) -> None:
        """A new step: what was free has changed. Worked out when the first purchase or binding asks.

        `barred`: providers nothing is asked of.
        """
        self._barred = barred
        self._resting = None
        self._free = None
        self._ranked.clear()
        self._told.clear()
        self._looks = _LOOKS

    def of(self, action: Action, record: Record, profile: Profile | None) -> str:
        """What the action was preferred to; empty where nothing more is known than its kind says."""
        if action.preemptor_priority and action.voluntary:
            return f"leaving it empty at {record.cluster}"
        if action.preemptor_priority:
            return f"{record.cluster} at priority {self._priority(record)}, below {action.preemptor_priority}"
        if action.reason == Reason.EXCESS and self._placement.reports_placement(record.cluster):
            # Its cluster may lack room all the same: other machines may be what it needs.
            return f"keeping it at {_price(record.shape)}: nothing runs on it"
        if action.kind in _KEPT and action.reason in (Reason.EXCESS, Reason.RELEASE):
            return _KEPT[action.kind].format(price=_price(record.shape))
        if profile is None or action.need is None:
            return ""
        key = (action.cluster, action.need, action.kind, id(record.shape))
        if key not in self._told:
            told = self._next(action, record, profile) if self._looks > 0 else ""
            self._told[key] = told if self._looks >= 0 else ""
        return self._told[key]

    def _priority(self, record: Record) -> int:
        """What runs there: as its cluster reports it, else what it was taken for."""
        told = self._placement.reports.on(record.key) if self._placement.reports_placement(record.cluster) else None
        return record.stamp.priority if told is None else told.max_pod_priority

    def _next(self, action: Action, record: Record, profile: Profile) -> str:
        assert action.need is not None
        if profile.same is not None and profile.same.key != HOSTNAME_LABEL:
            return self._next_domain(action.need, record, profile, profile.same.key)
        overhead, unit = self._demand.overhead(action.cluster), parse_canonical(action.need.min_unit)
        pods: Sequence[Part] = ()
        if profile.same is not None:
            # All of it on one machine: one unit.
            unit = sum((part.wanted for part in self._demand.parts(action.need)), start=Resources.ZERO)
        elif self._placement.reports_placement(action.cluster):
            pods = self._demand.parts(action.need)
        key = _spread_key(profile)
        domain = attribute(record.key, record.shape, key) if key else None
        states = (IDLE, SPECULATIVE) if action.kind == ActionKind.BOOTSTRAP else (SPECULATIVE,)
        for number, state in enumerate(states):
            least = _cost(record.shape, state, profile) if number == 0 and not pods else 0.0
            others = (
                (cost, shape)
                for cost, _, _, _, shape in self._by_cost(state, profile)
                if cost >= least
                and not _alike(shape, record.shape)
                and (domain is None or shape.label(key) == domain)
                and self._serves(shape, profile, unit, overhead)
            )
            found = list(islice(others, _LOOKED_AT if pods else 1))
            if found:
                carried = [
                    sum(min(part.stranded, part.fits(shape.allocatable.minus(overhead))) for part in pods)
                    for _, shape in found
                ]
                best = min(range(len(found)), key=lambda place: found[place][0] / max(1, carried[place]))
                cost, shape = found[best]
                rests = self._rests(shape, state, action.need)
                return _named(shape, state, cost, f" for {carried[best]} of its pods" if pods else "", rests)
        return NO_OTHER if domain is None else f"{NO_OTHER} in {domain}"

    def _next_domain(self, need: NeedKey, record: Record, profile: Profile, key: str) -> str:
        """The cheapest other domain that could have held all of a gang, by what is free there."""
        taken = attribute(record.key, record.shape, key)
        parts, overhead = self._demand.parts(need), self._demand.overhead(need.cluster)
        domains: dict[str, list[tuple[float, Shape, int]]] = {}
        for state in (IDLE, SPECULATIVE):
            for cost, _, _, _, shape in self._by_cost(state, profile):
                domain = shape.label(key)
                if domain is None or domain == taken:
                    continue
                if any(self._serves(shape, profile, part.unit, overhead) for part in parts):
                    free = self._state.fleet.counts.free_of(shape, state)
                    domains.setdefault(domain, []).append((cost, shape, free))
        hold = _pods_held if self._placement.reports_placement(need.cluster) else _sum_held
        prices = [(hold(kinds, parts, overhead), name) for name, kinds in domains.items()]
        whole = sorted((price, name) for price, name in prices if price is not None)
        if not whole:
            return f"waiting: no other {key} has room for all of it"
        return f"{key} {whole[0][1]}, which could have held all of it at ${whole[0][0]:.3f}/h"

    def _serves(self, shape: Shape, profile: Profile, unit: Resources, overhead: Resources) -> bool:
        """Whether a kind serves; nothing does any more in a step in which very many have been looked at."""
        self._looks -= 1
        return self._looks >= 0 and shape_serves(shape, profile, unit, overhead)

    def _rests(self, shape: Shape, state: int, need: NeedKey) -> str:
        """Why none of the kind can be had at the moment; empty when some can."""
        now = self._state.now
        if shape.provider in self._barred:
            return f"{shape.provider} refuses this shard"
        if state == SPECULATIVE and (why := self._state.breakers.why(kind_of(shape), now)):
            return f"not bought for now: {why}"
        if why := self._placement.backoffs.why(need.cluster, shape, need):
            return f"not tried for now: {why}"
        if self._resting is None:
            machines = self._state.fleet.machines
            held = (machines.get(key) for key, until in self._state.not_before.items() if until > now)
            self._resting = Counter((id(each.shape), each.state) for each in held if each is not None)
        free = self._state.fleet.counts.free_of(shape, state)
        return "all of them rest after failures" if self._resting[id(shape), state] >= free else ""

    def _by_cost(self, state: int, profile: Profile) -> _Ranked:
        key = (state, profile.interruption_dollars if state == SPECULATIVE else 0.0)
        if key not in self._ranked:
            if self._free is None:
                self._free = self._state.fleet.counts.free_shapes()
            self._ranked[key] = sorted(
                (
                    (_cost(shape, state, profile), shape.provider, shape.instance_type, shape.zone, shape)
                    for shape in self._free.get(state, ())
                ),
                key=lambda each: each[:4],
            )
        return self._ranked[key]


def _cost(shape: Shape, state: int, profile: Profile) -> float:
    """What the engine orders free machines by: of a slot the price and the interruptions to expect."""
    if state == IDLE:
        return shape.price
    dollars = profile.interruption_dollars
    return shape.price + (shape.probability * dollars if shape.probability > 0 and dollars > 0 else 0.0)


def _alike(one: Shape, other: Shape) -> bool:
    """Whether two kinds differ in nothing a person would choose by."""
    return (one.provider, one.instance_type, one.zone, one.capacity_type, one.price) == (
        other.provider,
        other.instance_type,
        other.zone,
        other.capacity_type,
        other.price,
    )


def _spread_key(profile: Profile) -> str:
    spread = None if profile.same is not None else profile.strict_spread
    return "" if spread is None or spread.topology_key == HOSTNAME_LABEL else spread.topology_key


def _pods_held(kinds: _Kinds, parts: Sequence[Part], overhead: Resources) -> float | None:
    """What machines of these kinds, the first of them first, cost that hold all pods of a gang; None if they cannot."""
    wanted, price = [part.stranded for part in parts], 0.0
    for cost, shape, count in kinds:
        for _ in range(count):
            if not any(wanted):
                return price
            left, before = shape.allocatable.minus(overhead), list(wanted)
            for place, part in enumerate(parts):
                held = min(wanted[place], part.fits(left))
                wanted[place] -= held
                left = left.minus(part.unit.scale(held))
            if wanted == before:
                break
            price += cost
    return None if any(wanted) else price


def _sum_held(kinds: _Kinds, parts: Sequence[Part], overhead: Resources) -> float | None:
    """The same of a gang that is a sum: what it asks for in all, in machines as they come."""
    left, price = sum((part.aggregate for part in parts), start=Resources.ZERO), 0.0
    for cost, shape, count in kinds:
        for _ in range(count):
            if left.is_zero:
                return price
            left = left.minus(shape.allocatable.minus(overhead))
            price += cost
    return price if left.is_zero else None


def _named(shape: Shape, state: int, cost: float, pods: str, rests: str) -> str:
    what = f"{shape.instance_type} in {shape.zone or 'no zone'} of {shape.provider} at {_price(shape)}"
    risk = f", ${cost:.3f}/h with interruptions" if cost > shape.price else ""
    return f"{what}{risk}{pods} ({rests or ('free' if state == IDLE else 'to be bought')})"


def _price(shape: Shape) -> str:
    return f"${shape.price:.3f}/h"
