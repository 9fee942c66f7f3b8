"""Why: what made a machine the right one to buy, and why a need goes without. Numbers as the engine compares them.

The engine buys where price + risk × penalty is least, so a reason sets that sum against the other market's. Pure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bigfleet.demo.watching import SeenMachine, SeenNeed
from bigfleet.engine.results import UnmetReason
from bigfleet.model.amounts import spoken_amounts
from bigfleet.model.machine import CapacityType, MachineState

REASONS = {
    UnmetReason.NONE: "is met",
    UnmetReason.PRIORITY_STARVED: "others of equal or higher priority hold every machine that fits",
    UnmetReason.NO_MATCHING_SUPPLY: "no machine of this fleet fits",
    UnmetReason.TOPOLOGY_UNSATISFIABLE: "no single rack has room for it",
    UnmetReason.PREEMPTION_EXHAUSTED: "even taking machines from others is not enough",
    UnmetReason.RESOURCE_NOT_PUBLISHED: "no machine offers what it asks for",
    UnmetReason.SPREAD_UNSATISFIABLE: "free machines would break its spread",
    UnmetReason.CLUSTER_DISCONNECTED: "its cluster is not connected",
    UnmetReason.ACQUISITION_HELD: "the shard waits until it can trust its inventory",
    UnmetReason.SUPPLY_BACKED_OFF: "machines that fit failed a moment ago and are left alone",
    UnmetReason.AWAITING_DRAIN: "machines are being drained for it",
    UnmetReason.AWAITING_NODE: "a machine bought for it has not become a node yet",
    UnmetReason.FRAGMENTATION: "there is space enough, in pieces too small",
    UnmetReason.RISK_TOO_HIGH: "what fits is interrupted too often for it",
    UnmetReason.DID_NOT_HELP: "kinds that fit were tried and were no use to it; they are left alone for a while",
    UnmetReason.EXCLUSIVE: "one goes on a node, and every node with room has one",
    UnmetReason.NOT_BELIEVED: "what its operator reports contradicts itself",
}
# Reasons that come down to: everything that fits is taken.
_TAKEN = frozenset({UnmetReason.PRIORITY_STARVED, UnmetReason.PREEMPTION_EXHAUSTED})
_FOR_SALE = {CapacityType.SPOT: "spot", CapacityType.ON_DEMAND: "on-demand"}
_NAMED_PRIORITIES = ((1_000_000, "critical"), (1000, "service"), (500, "web"), (0, "batch"))


@dataclass(frozen=True, slots=True)
class Market:
    """What the shard could see for sale: price and risk of every kind, and how many nobody was promised."""

    offers: Mapping[tuple[str, CapacityType], tuple[float, float]] = field(default_factory=dict)
    left: Counter[tuple[str, CapacityType]] = field(default_factory=Counter)

    @classmethod
    def of(cls, machines: Iterable[SeenMachine]) -> Market:
        offers, left = {}, Counter[tuple[str, CapacityType]]()
        for machine in machines:
            kind = (machine.instance_type, machine.kind)
            offers[kind] = (machine.price, machine.risk)
            left[kind] += machine.state is MachineState.SPECULATIVE and not machine.picked
        return cls(offers, left)


def why_bought(machine: SeenMachine, penalty: float, market: Market) -> str:
    """Why this market and not the other, for one machine of its type."""
    reasons = [f"{name} is sold out" for name in _cheaper_and_sold_out(machine, penalty, market)]
    on_spot = machine.kind is CapacityType.SPOT
    other = market.offers.get((machine.instance_type, CapacityType.ON_DEMAND if on_spot else CapacityType.SPOT))
    if other is not None:
        price, risk = other
        if on_spot:
            saved = cents(price - machine.price)
            reasons.append(f"spot is good enough: {_risk(machine.risk, penalty)}, on-demand is {saved}/h dearer")
        elif exposure(risk, penalty) > machine.price - price:
            reasons.append(f"spot is {cents(machine.price - price)}/h cheaper, but {_risk(risk, penalty)}")
    return "; ".join(reasons) or "the cheapest for sale that fits"


def exposure(risk: float, penalty: float) -> float:
    """What interruptions cost per hour; no risk costs nothing, however dear an interruption would be."""
    return risk * penalty if risk > 0 and penalty > 0 else 0.0


def _cheaper_and_sold_out(machine: SeenMachine, penalty: float, market: Market) -> list[str]:
    """Kinds that would have come first, had any been left."""
    cost = machine.price + exposure(machine.risk, penalty)
    return [
        f"{_FOR_SALE[kind]} {instance_type}"
        for (instance_type, kind), (price, risk) in sorted(market.offers.items())
        if kind in _FOR_SALE and price + exposure(risk, penalty) < cost and not market.left[instance_type, kind]
    ]


def why_short(need: SeenNeed) -> str:
    """Why a need goes without."""
    if need.reason is None:
        return "its operator cannot render user data"
    if need.reason in _TAKEN and not need.idle and not need.for_sale:
        holders = f", and the {need.in_use} in use serve equal or higher priorities" if need.in_use else ""
        return f"nothing that fits is left for sale{holders}"
    return REASONS[need.reason]


def shortfall(need: SeenNeed) -> str:
    """What is missing, and why."""
    missing = spoken_amounts(need.missing.to_wire()) or "machines"
    return f"{need.name} ({priority_word(need.priority)}) is short of {missing}: {why_short(need)}"


def priority_word(priority: int) -> str:
    return next((name for least, name in _NAMED_PRIORITIES if priority >= least), "batch")


def cents(value: float) -> str:
    """Dollars to the cent."""
    return f"${value:,.2f}"


def _risk(risk: float, penalty: float) -> str:
    """`7.5% risk × $1,024 an interruption = $76.80/h`."""
    if math.isinf(penalty):
        return "it must never be interrupted"
    return f"{risk:.1%} risk × ${penalty:,.0f} an interruption = {cents(risk * penalty)}/h".replace(".0%", "%")
