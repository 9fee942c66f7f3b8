"""What the scenario's providers have for sale: fleets and offers, and the fake's catalogue they stand for."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from bigfleet.model.assignment import Assignment, encode
from bigfleet.model.machine import CapacityType
from bigfleet.model.penalty import bucket_dollars
from bigfleet.model.taint import Taint
from bigfleet.provider.fake.catalogue import LATENCIES, Catalogue, Latencies, Misfortune, RateLimit
from bigfleet.provider.fake.instance_types import known_instance_types
from bigfleet.provider.fake.offerings import RACK_LABEL, Offering
from bigfleet.provider.kit.core.core import Timeouts
from bigfleet.provider.kit.core.records import Kind
from bigfleet.sim.document.document import Amounts, Labels, Nanoseconds, item
from bigfleet.sim.scenario.shapes import PodShape
from bigfleet.virtual.kernel import MINUTE, SECOND, Duration

OFFER_LABEL = "sim.bigfleet/offer"
_NAME = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_NAME_ACCEPTED = "lower-case letters, digits and '-', at most 63"


class Market(StrEnum):
    """Capacity types."""

    BARE_METAL = "bare-metal"
    RESERVED = "reserved"
    ON_DEMAND = "on-demand"
    SPOT = "spot"


class Pace(StrEnum):
    """Named sets of transition durations."""

    INSTANT = "instant"
    QUICK = "quick"
    REALISTIC = "realistic"


_MARKETS = {
    Market.BARE_METAL: (CapacityType.BARE_METAL, 0.0, 0.0),
    Market.RESERVED: (CapacityType.RESERVED, 0.6, 0.0),
    Market.ON_DEMAND: (CapacityType.ON_DEMAND, 1.0, 0.0),
    Market.SPOT: (CapacityType.SPOT, 0.3, 0.05),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Holds:
    """How many pods of a shape one machine holds: its size is that many times the pod."""

    shape: str = item("the name of a shape")
    pods: int = item("pods per machine", default=1, low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaintSpec:
    """One taint."""

    key: str = item("the key")
    value: str = item("the value", default="")
    effect: str = item("the effect", default="NoSchedule")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Equal machines: some bound at the start, some idle, the rest slots to buy."""

    name: str = item("the offer's name; machine ids begin with it", pattern=_NAME, accepted=_NAME_ACCEPTED)
    instance_type: str = item("the instance type", pattern=r"\S+", accepted="an instance type")
    capacity_type: Market = item("how it is paid for", default=Market.ON_DEMAND)
    slots: int = item("machines that can be bought", default=0, low=0)
    idle: int = item("hosts that exist and serve nobody at the start", default=0, low=0)
    configured_per_cluster: int = item("hosts bound to every cluster at the start", default=0, low=0)
    zones: tuple[str, ...] = item("the zones, filled in turn", default=("zone-a",))
    racks: int = item("racks per zone; 0 for none", default=0, low=0)
    rack_block: int = item("so many consecutive machines share a rack; 0 deals them out in turn", default=0, low=0)
    price_per_hour: float | None = item("dollars per hour; from the table when left out", default=None, low=0)
    interruption_probability: float | None = item(
        "the declared chance per hour of losing it", default=None, low=0, high=1
    )
    resources: Amounts = item("its size; from the table when left out", default={})
    holds: Holds | None = item("its size, as a number of pods", default=None)
    labels: Labels = item("further labels", default={})
    taints: tuple[TaintSpec, ...] = item("taints", default=())

    def __post_init__(self) -> None:
        if not self.zones or len(set(self.zones)) != len(self.zones):
            raise ValueError(f"zones is {list(self.zones)}; give one or more different zones")
        if self.slots + self.idle + self.configured_per_cluster == 0:
            raise ValueError("the offer has no machine; give slots, idle or configured_per_cluster")
        if self.rack_block and not self.racks:
            raise ValueError(f"rack_block is {self.rack_block} without racks; give racks too")
        price_of(self)  # which complains when there is none

    def count(self, clusters: int) -> int:
        return self.slots + self.idle + self.configured_per_cluster * clusters


@dataclass(frozen=True, slots=True, kw_only=True)
class Pacing:
    """How long each transition takes, where it differs from the fleet's pace."""

    create: Duration | None = item("Speculative to Idle", default=None)
    configure: Duration | None = item("Idle until the node has joined", default=None)
    ready: Duration | None = item("from there until the node is Ready", default=None)
    drain: Duration | None = item("Configured to Idle, at the provider", default=None)
    delete: Duration | None = item("Idle to Speculative", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Luck:
    """What happens to hosts by themselves."""

    interruptions: float = item("multiplies the declared spot risk; 0 turns it off", default=0.0, low=0)
    notice: Nanoseconds = item("warning before a spot host vanishes", default=Nanoseconds(120 * SECOND))
    losses_per_hour: float = item("host losses per machine and hour", default=0.0, low=0)
    broken_share: float = item("share of them that stay listed as Failed", default=0.0, low=0, high=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A limit on calls of one kind; what exceeds it waits."""

    transition: str = item(
        "create, configure, drain or delete",
        pattern="create|configure|drain|delete",
        accepted="one of create, configure, drain, delete",
    )
    per_second: float = item("calls per second", low=0.001)
    burst: int = item("calls at once", default=1, low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """What `offers: catalogue` means: every instance type of the shipped table, in these markets."""

    markets: tuple[Market, ...] = item("how they are paid for", default=(Market.ON_DEMAND, Market.SPOT))
    types: tuple[str, ...] = item("only these instance types; empty for all of the table", default=())
    slots: int = item("machines of each type and market that can be bought", default=100, low=1)
    zones: tuple[str, ...] = item("the zones, filled in turn", default=("zone-a",))
    racks: int = item("racks per zone; 0 for none", default=0, low=0)

    def __post_init__(self) -> None:
        for name in self.types:
            if name not in known_instance_types():
                raise ValueError(f"types names {name!r}, which is not in the table{_alternatives(name)}")

    def offers(self) -> tuple[Offer, ...]:
        return tuple(
            Offer(
                name=f"{name.replace('.', '-')}-{market}",
                instance_type=name,
                capacity_type=market,
                slots=self.slots,
                zones=self.zones,
                racks=self.racks,
            )
            for name in self.types or known_instance_types()
            for market in self.markets
        )


class _Table(tuple[Offer, ...]):
    """Stands for the whole price list until the fleet is made: an empty list of offers is not the same."""


_CATALOGUE: tuple[Offer, ...] = _Table()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """One provider."""

    offers: tuple[Offer, ...] = item(
        "what it has for sale, or `catalogue` for the shipped table of instance types", words={"catalogue": _CATALOGUE}
    )
    catalogue: PriceList = item("what `offers: catalogue` takes of that table", default=PriceList())
    provider: str = item("its name", default="sim", pattern=_NAME, accepted=_NAME_ACCEPTED)
    pace: Pace = item("how long transitions take", default=Pace.REALISTIC)
    latencies: Pacing = item("single durations that differ from the pace", default=Pacing())
    luck: Luck = item("what happens to hosts by themselves", default=Luck())
    rate_limits: tuple[Rate, ...] = item("limits on calls", default=())
    relist_after: Nanoseconds = item("how long a lost host's slot stays away", default=Nanoseconds(MINUTE))
    can_delete: bool = item("whether hosts can be given back", default=True)

    def __post_init__(self) -> None:
        if isinstance(self.offers, _Table):
            object.__setattr__(self, "offers", self.catalogue.offers())
        names = [offer.name for offer in self.offers]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"offers names {name!r} twice; machine ids are made of these names")


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A machine that serves a cluster from the start."""

    machine: str
    cluster: str
    metadata: dict[str, str]


def catalogue(
    fleet: Fleet, shapes: dict[str, PodShape], clusters: Sequence[str], seed: int
) -> tuple[Catalogue, list[Binding]]:
    """The fake's catalogue for a fleet, and which of its machines are bound at the start."""
    offerings: list[Offering] = []
    bindings: list[Binding] = []
    for offer in sorted(fleet.offers, key=lambda offer: offer.name):
        made = _offerings(offer, shapes, len(clusters))
        offerings += made
        ids = _ids_in_order(offer, made, len(clusters))
        for place, cluster in enumerate(clusters):
            first = place * offer.configured_per_cluster
            chosen = ids[first : first + offer.configured_per_cluster]
            metadata = _stamp(shapes[offer.holds.shape]) if offer.holds else {}
            bindings += [Binding(machine=machine, cluster=cluster, metadata=metadata) for machine in chosen]
    found = Catalogue(
        provider=fleet.provider,
        offerings=tuple(offerings),
        seed=seed,
        latencies=_latencies(fleet),
        timeouts=Timeouts(create=1800.0, configure=1800.0, drain=3600.0, delete=1800.0),
        relist_seconds=fleet.relist_after / SECOND,
        can_delete=fleet.can_delete,
        misfortune=Misfortune(
            fleet.luck.interruptions,
            fleet.luck.notice / SECOND,
            fleet.luck.losses_per_hour,
            fleet.luck.broken_share,
        ),
        rate_limits={Kind(rate.transition): RateLimit(rate.per_second, rate.burst) for rate in fleet.rate_limits},
    )
    return found, bindings


def split(fleet: Fleet, place: int, parts: int) -> Fleet | None:
    """The part of a fleet that the cluster at `place` would own if every cluster had its own; None for nothing."""
    offers = []
    for offer in fleet.offers:
        share = replace_counts(offer, place, parts)
        if share is not None:
            offers.append(share)
    return replace(fleet, offers=tuple(offers)) if offers else None


def replace_counts(offer: Offer, place: int, parts: int) -> Offer | None:
    def part(total: int) -> int:
        return total * (place + 1) // parts - total * place // parts

    slots, idle = part(offer.slots), part(offer.idle)
    if slots + idle + offer.configured_per_cluster == 0:
        return None
    return replace(offer, slots=slots, idle=idle)


def price_of(offer: Offer) -> float:
    if offer.price_per_hour is not None:
        return offer.price_per_hour
    known = known_instance_types().get(offer.instance_type)
    _, share, _ = _MARKETS[offer.capacity_type]
    if known is None:
        if share == 0.0:
            return 0.0
        raise ValueError(
            f"offer {offer.name!r} has no price_per_hour and {offer.instance_type!r} is not in the table; give a price"
            f"{_alternatives(offer.instance_type)}"
        )
    return round(known.on_demand_usd_per_hour * share, 6)


def risk_of(offer: Offer) -> float:
    """The declared chance per hour of losing one of its machines."""
    given = offer.interruption_probability
    return _MARKETS[offer.capacity_type][2] if given is None else given


def priced_as(prices: Mapping[str, float], instance_type: str, market: Market, offer: str = "") -> str:
    """Which of some names in a what-if means these machines: an offer, TYPE/MARKET, or a TYPE; empty for none.

    A type alone means machines paid by the hour: what is owned or reserved does not follow the market.
    """
    hourly = market in (Market.ON_DEMAND, Market.SPOT)
    names = (offer, f"{instance_type}/{market}", instance_type if hourly else "")
    return next((name for name in names if name and name in prices), "")


def size_of(offer: Offer, shapes: dict[str, PodShape]) -> dict[str, str]:
    """The resources of one machine, as quantity texts."""
    if offer.holds is not None:
        return shapes[offer.holds.shape].request.scale(offer.holds.pods).to_wire()
    if offer.resources:
        return dict(offer.resources)
    known = known_instance_types().get(offer.instance_type)
    if known is None:
        raise ValueError(
            f"offer {offer.name!r} has no resources and {offer.instance_type!r} is not in the table; give its size"
            f"{_alternatives(offer.instance_type)}"
        )
    return dict(known.resources())


def _alternatives(instance_type: str) -> str:
    """Types the table has instead, if any are like it."""
    found = difflib.get_close_matches(instance_type, known_instance_types(), n=3)
    return f", or a type it has, such as {', '.join(found)}" if found else ""


def _offerings(offer: Offer, shapes: dict[str, PodShape], clusters: int) -> list[Offering]:
    capacity_type, _, _ = _MARKETS[offer.capacity_type]
    size = size_of(offer, shapes)
    whole = Offering(
        name=offer.name,
        instance_type=offer.instance_type,
        capacity_type=capacity_type,
        count=offer.count(clusters),
        zones=offer.zones,
        racks=offer.racks,
        price_per_hour=price_of(offer),
        interruption_probability=risk_of(offer),
        hosts=offer.idle + offer.configured_per_cluster * clusters,
        resources=size,
        allocatable=size,
        labels={**offer.labels, OFFER_LABEL: offer.name},
        taints=tuple(Taint(t.key, t.value, t.effect) for t in offer.taints),
    )
    if not offer.rack_block:
        return [whole]
    return [
        replace(
            whole,
            name=f"{offer.name}-r{rack}",
            zones=(zone,),
            racks=0,
            count=len(numbers),
            hosts=sum(number < whole.hosts for number in numbers),
            labels={**whole.labels, RACK_LABEL: f"{zone}-rack-{rack}"},
        )
        for (zone, rack), numbers in _blocks(offer, whole.count).items()
    ]


def _blocks(offer: Offer, count: int) -> dict[tuple[str, int], list[int]]:
    found: dict[tuple[str, int], list[int]] = {}
    for number in range(count):
        block = number // offer.rack_block
        place = (offer.zones[block % len(offer.zones)], block % offer.racks)
        found.setdefault(place, []).append(number)
    return found


def _ids_in_order(offer: Offer, made: list[Offering], clusters: int) -> list[str]:
    """Machine ids by the offer's own numbering, which is how bindings count."""
    count = offer.count(clusters)
    if not offer.rack_block:
        return [made[0].machine_id(number) for number in range(count)]
    ids = [""] * count
    for offering, numbers in zip(made, _blocks(offer, count).values(), strict=True):
        for place, number in enumerate(numbers):
            ids[number] = offering.machine_id(place)
    return ids


def _stamp(shape: PodShape) -> dict[str, str]:
    profile = shape.profile()
    return encode(
        Assignment(
            priority=profile.priority,
            interruption_dollars=bucket_dollars(profile.interruption_bucket),
            reclamation_dollars=bucket_dollars(profile.reclamation_bucket),
            fingerprint=profile.fingerprint,
            group="",
        )
    )


def _latencies(fleet: Fleet) -> Latencies:
    base = LATENCIES[fleet.pace.value]
    own = fleet.latencies
    return Latencies(
        create=own.create or base.create,
        configure=own.configure or base.configure,
        ready=own.ready or base.ready,
        drain=own.drain or base.drain,
        delete=own.delete or base.delete,
    )
