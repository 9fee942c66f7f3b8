"""What the fake has for sale: offerings, and the slots and hosts they stand for.

Slot number n lies in zone n mod zones and, within its zone, in rack (n div zones) mod racks, so that any prefix of an
offering is spread evenly. Ids are valid node names and depend on nothing but the offering and n.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from bigfleet.model.machine import CapacityType
from bigfleet.model.names import RESERVED_MACHINE_LABELS, SIMULATED_LABEL
from bigfleet.model.taint import Taint
from bigfleet.provider.fake.fields import CatalogueError, Fields
from bigfleet.provider.fake.instance_types import known_instance_types
from bigfleet.provider.kit.core.records import Host, Instance

RACK_LABEL: Final = "topology.bigfleet/rack"

CAPACITY_TYPES: Final = MappingProxyType(
    {
        "bare-metal": CapacityType.BARE_METAL,
        "reserved": CapacityType.RESERVED,
        "on-demand": CapacityType.ON_DEMAND,
        "spot": CapacityType.SPOT,
    }
)
# What a type of the table costs in each market when the offering names no price of its own.
_PRICE_SHARE: Final = {
    CapacityType.BARE_METAL: 0.0,
    CapacityType.RESERVED: 0.6,
    CapacityType.ON_DEMAND: 1.0,
    CapacityType.SPOT: 0.3,
}
_SPOT_RISK = 0.05
_EFFECTS = {effect: effect for effect in ("NoSchedule", "PreferNoSchedule", "NoExecute")}
_NAME = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"


@dataclass(frozen=True, slots=True)
class Offering:
    """A number of equal machines. The first `hosts` of them exist from the start, the rest are slots to buy."""

    name: str
    instance_type: str
    capacity_type: CapacityType
    count: int
    zones: tuple[str, ...]
    racks: int
    price_per_hour: float
    interruption_probability: float
    hosts: int = 0
    resources: dict[str, str] = field(default_factory=dict)
    allocatable: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    # So many neighbours of a zone share a rack before the next rack's turn comes.
    rack_block: int = 1

    def machine_id(self, number: int) -> str:
        return f"{self.name}-{self.zones[number % len(self.zones)]}-{number:04}"

    def instances(self, provider: str) -> Iterator[Instance]:
        """Every machine of the offering, in number order."""
        return (self.instance(provider, number) for number in range(self.count))

    def instance(self, provider: str, number: int) -> Instance:
        """Machine `number` as it is at the very start."""
        machine_id = self.machine_id(number)
        zone = self.zones[number % len(self.zones)]
        labels = {**self.labels, SIMULATED_LABEL: "true"}
        if self.racks:
            labels[RACK_LABEL] = f"{zone}-rack-{number // len(self.zones) // self.rack_block % self.racks}"
        return Instance(
            machine_id,
            self.instance_type,
            zone=zone,
            capacity_type=self.capacity_type,
            price_per_hour=self.price_per_hour,
            interruption_probability=self.interruption_probability,
            resources=self.resources,
            allocatable=self.allocatable,
            labels=labels,
            taints=self.taints,
            host=Host(provider, f"host-{machine_id}") if number < self.hosts else None,
        )


def read_offering(fields: Fields) -> Offering:
    """One entry of a catalogue's `offerings`."""
    name = fields.text("name", pattern=_NAME, accepted="a name of lower-case letters, digits and '-', at most 63")
    instance_type = fields.text("instance_type", pattern=r"\S+", accepted="the name of an instance type")
    capacity_type = fields.choice("capacity_type", CAPACITY_TYPES)
    known = known_instance_types().get(instance_type)
    count = fields.whole("count", low=1)
    resources = fields.quantities("resources") or (known.resources() if known else {})
    if not resources:
        raise CatalogueError(
            f"{fields.where}.resources is missing and {instance_type!r} is not in the table of known instance types; "
            "give a map such as {cpu: 4, memory: 16Gi}"
        )
    price = known.on_demand_usd_per_hour * _PRICE_SHARE[capacity_type] if known else None
    if capacity_type is CapacityType.BARE_METAL:
        price = 0.0
    spot = capacity_type is CapacityType.SPOT
    offering = Offering(
        name=name,
        instance_type=instance_type,
        capacity_type=capacity_type,
        count=count,
        zones=_zones(fields),
        racks=fields.whole("racks", 0, high=10_000),
        price_per_hour=fields.number("price_per_hour", None if price is None else round(price, 6)),
        interruption_probability=fields.number("interruption_probability", _SPOT_RISK if spot else 0.0, high=1.0),
        hosts=fields.whole("hosts", 0, high=count),
        resources=resources,
        allocatable=fields.quantities("allocatable") or dict(resources),
        labels=_labels(fields),
        taints=fields.items("taints", _read_taint),
    )
    if spot and offering.interruption_probability == 0.0:
        raise fields.refuse("interruption_probability", 0, "more than 0 for spot, the chance per hour to lose the host")
    fields.done()
    return offering


def _zones(fields: Fields) -> tuple[str, ...]:
    zones = fields.texts("zones")
    if not zones or len(set(zones)) != len(zones):
        raise fields.refuse("zones", list(zones), "one or more different zone names")
    return zones


def _labels(fields: Fields) -> dict[str, str]:
    labels = fields.mapping("labels")
    for key in labels:
        if key in RESERVED_MACHINE_LABELS:
            raise fields.refuse(f"labels.{key}", labels[key], "this value in the field made for it, not as a label")
    return labels


def _read_taint(fields: Fields) -> Taint:
    taint = Taint(fields.text("key"), fields.text("value", ""), fields.choice("effect", _EFFECTS, "NoSchedule"))
    fields.done()
    return taint
