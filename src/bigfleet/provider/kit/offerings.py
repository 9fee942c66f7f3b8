"""Offerings: what a provider may buy, as a JSON file of types, zones and counts, turned into slots.

The set of slots is the quota; the provider never launches anything that is not in it. A file with a mistake stops
the start, because a slot that cannot be bought costs a cluster its capacity later.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bigfleet.model.machine import CapacityType
from bigfleet.model.taint import EFFECTS, Taint
from bigfleet.provider.kit.core.records import Instance

_CAPACITY_TYPES = {
    "on_demand": CapacityType.ON_DEMAND,
    "on-demand": CapacityType.ON_DEMAND,
    "ondemand": CapacityType.ON_DEMAND,
    "spot": CapacityType.SPOT,
    "reserved": CapacityType.RESERVED,
    "bare_metal": CapacityType.BARE_METAL,
    "bare-metal": CapacityType.BARE_METAL,
    "metal": CapacityType.BARE_METAL,
}
_SPELLING = {
    CapacityType.ON_DEMAND: "OnDemand",
    CapacityType.SPOT: "Spot",
    CapacityType.RESERVED: "Reserved",
    CapacityType.BARE_METAL: "BareMetal",
}
_KEYS = frozenset(
    {
        "instance_type",
        "zone",
        "capacity_type",
        "count",
        "resources",
        "allocatable",
        "labels",
        "taints",
        "price_per_hour",
        "interruption_probability",
    }
)


class OfferingError(ValueError):
    """The offerings file is wrong; the message names the entry and what would be accepted."""


@dataclass(frozen=True, slots=True)
class Offering:
    """So many slots of one type in one zone."""

    instance_type: str
    zone: str
    count: int
    capacity_type: CapacityType = CapacityType.ON_DEMAND
    price_per_hour: float = 0.0
    interruption_probability: float = 0.0
    resources: dict[str, str] = field(default_factory=dict)
    allocatable: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()

    def slots(self, provider: str) -> Iterator[Instance]:
        """One instance per slot, with ids that stay the same from start to start."""
        stem = f"{provider}/{_SPELLING[self.capacity_type]}/{self.instance_type}/{self.zone}"
        for index in range(self.count):
            yield Instance(
                f"{stem}/{index:03d}",
                self.instance_type,
                zone=self.zone,
                capacity_type=self.capacity_type,
                price_per_hour=self.price_per_hour,
                interruption_probability=self.interruption_probability,
                resources=self.resources,
                allocatable=self.allocatable,
                labels=self.labels,
                taints=self.taints,
            )


def read_offerings(path: Path) -> list[Offering]:
    """Every entry of the file, checked."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OfferingError(f"offerings file {path} cannot be read: {error}; it must hold a JSON array") from error
    if not isinstance(entries, list) or not entries:
        raise OfferingError(f"offerings file {path} must hold a non-empty JSON array of offerings")
    return [_offering(path, index, entry) for index, entry in enumerate(entries)]


def spread(offerings: Sequence[Offering], count: int) -> list[Offering]:
    """The same offerings with `count` slots in all, shared out evenly: a default mix for `--seed-count`."""
    share, rest = divmod(count, len(offerings))
    sized = [(offering, share + (index < rest)) for index, offering in enumerate(offerings)]
    return [replace(offering, count=slots) for offering, slots in sized if slots]


def _offering(path: Path, index: int, entry: Any) -> Offering:
    where = f"offerings file {path}, entry {index}"
    if not isinstance(entry, dict):
        raise OfferingError(f"{where} is {type(entry).__name__}; each entry must be an object")
    if unknown := sorted(set(entry) - _KEYS):
        raise OfferingError(f"{where} has the unknown key {unknown[0]!r}; accepted are {', '.join(sorted(_KEYS))}")
    for key in ("instance_type", "zone"):
        if not isinstance(entry.get(key), str) or not entry[key]:
            raise OfferingError(f"{where}: {key} {entry.get(key)!r} must be a non-empty text")
    count = entry.get("count")
    if not isinstance(count, int) or isinstance(count, bool) or count <= 0:
        raise OfferingError(f"{where}: count {count!r} must be a whole number above 0")
    kind = _CAPACITY_TYPES.get(str(entry.get("capacity_type", "on_demand")).lower())
    if kind is None:
        raise OfferingError(f"{where}: capacity_type must be one of {', '.join(sorted(_CAPACITY_TYPES))}")
    for key in ("resources", "allocatable", "labels"):
        value = entry.get(key, {})
        if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
            raise OfferingError(f"{where}: {key} must map texts to texts")
    offering = Offering(**{**entry, "capacity_type": kind, "taints": _taints(where, entry.get("taints", []))})
    if problem := next(offering.slots("x")).problem(require_zone=True):
        raise OfferingError(f"{where}: {problem.partition(': ')[2]}")
    return offering


def _taints(where: str, entries: Any) -> tuple[Taint, ...]:
    try:
        taints = tuple(Taint(each["key"], each.get("value", ""), each["effect"]) for each in entries)
    except (TypeError, KeyError, AttributeError) as error:
        raise OfferingError(f"{where}: taints must be an array of objects with key, value and effect") from error
    for taint in taints:
        if taint.effect not in EFFECTS:
            raise OfferingError(f"{where}: taint effect {taint.effect!r} is none of {', '.join(EFFECTS)}")
    return taints
