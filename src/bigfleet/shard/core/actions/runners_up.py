"""What a decision beat, by name: the machine that would have been taken otherwise, or the need that had to give way.

For clusters that ask in sums the engine takes free machines by price and slots by price and risk, so the runner-up is
the next kind that serves the need in that order. Where a choice depends on more than the need (groups, spreads, units
that share machines) only the kind of alternative is told. Tells; decides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bigfleet.engine.results import Action, ActionKind, Reason
from bigfleet.model.penalty import bucket_dollars
from bigfleet.shard.core.machines.matching import parse_canonical, shape_serves
from bigfleet.shard.core.state.enum_aliases import IDLE, SPECULATIVE

if TYPE_CHECKING:
    from bigfleet.engine.batches import Shape
    from bigfleet.model.profile import Profile
    from bigfleet.shard.core.clusters.demand import Demand
    from bigfleet.shard.core.clusters.placement import Placement
    from bigfleet.shard.core.state.fleet import Record
    from bigfleet.shard.core.state.state import ShardState

# Kinds that are looked at for one need: further ones would hardly have been chosen.
_LOOKED_AT = 200
_KEPT = {
    ActionKind.RECLAIM: "keeping it at {price}: its cluster is served without it",
    ActionKind.DELETE: "keeping it idle at {price}: nobody asked for it in time",
}
NO_OTHER = "nothing else that fits"
# Free kinds by what they cost a need: cost, provider, instance type, zone, shape.
_Ranked = list[tuple[float, str, str, str, "Shape"]]


class RunnersUp:
    """Asked about the actions of one step; `begin` comes before the first of them."""

    def __init__(self, state: ShardState, demand: Demand, placement: Placement) -> None:
        self._state = state
        self._demand = demand
        self._placement = placement
        self._free: dict[int, list[Shape]] | None = None
        self._ranked: dict[tuple[int, int], _Ranked] = {}
        self._told: dict[tuple[object, ...], str] = {}

    def begin(self) -> None:
        """A new step: what was free has changed. Worked out when the first purchase or binding asks."""
        self._free = None
        self._ranked.clear()
        self._told.clear()

    def of(self, action: Action, record: Record, profile: Profile | None) -> str:
        """What the action was preferred to; empty where nothing more is known than its kind says."""
        if action.preemptor_priority:
            whose = f"{record.cluster} at priority {record.stamp.priority}"
            return f"{whose}, below {action.preemptor_priority}"
        if action.kind in _KEPT and action.reason in (Reason.EXCESS, Reason.RELEASE):
            return _KEPT[action.kind].format(price=_price(record.shape))
        if profile is None or action.need is None:
            return ""
        if profile.same is not None or profile.strict_spread is not None:
            return ""
        if self._placement.reports_placement(action.cluster):
            return ""
        key = (action.cluster, action.need.fingerprint, action.need.min_unit, action.kind, id(record.shape))
        if key not in self._told:
            self._told[key] = self._next(action, record.shape, profile)
        return self._told[key]

    def _next(self, action: Action, chosen: Shape, profile: Profile) -> str:
        assert action.need is not None
        unit, overhead = parse_canonical(action.need.min_unit), self._demand.overhead(action.cluster)
        states = (IDLE, SPECULATIVE) if action.kind == ActionKind.BOOTSTRAP else (SPECULATIVE,)
        for number, state in enumerate(states):
            least = _cost(chosen, state, profile) if number == 0 else 0.0
            behind = [each for each in self._by_cost(state, profile) if each[0] >= least]
            for cost, _, _, _, shape in behind[:_LOOKED_AT]:
                if not _alike(shape, chosen) and shape_serves(shape, profile, unit, overhead):
                    return _named(shape, state, cost)
        return NO_OTHER

    def _by_cost(self, state: int, profile: Profile) -> _Ranked:
        key = (state, profile.interruption_bucket if state == SPECULATIVE else 0)
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
    dollars = bucket_dollars(profile.interruption_bucket)
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


def _named(shape: Shape, state: int, cost: float) -> str:
    what = f"{shape.instance_type} in {shape.zone or 'no zone'} of {shape.provider} at {_price(shape)}"
    risk = f", ${cost:.3f}/h with interruptions" if cost > shape.price else ""
    return f"{what}{risk} ({'free' if state == IDLE else 'to be bought'})"


def _price(shape: Shape) -> str:
    return f"${shape.price:.3f}/h"
