"""The archetype catalogue: what a realistic fleet runs, as shares of objects with sizes, priorities and topology.

Drawn deterministically from a given generator until a cluster has its pods. Values and draws only.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources

from bigfleet.sim.document.document import Amounts, Dollars, Nanoseconds, item, load
from bigfleet.sim.scenario.shapes import Colocation, PodShape, SpreadSpec, Unsatisfiable

REPLICAS = (1, 2, 3, 5, 8, 12, 20, 120)
"""Sizes of objects that are no gangs, equally likely; their mean is 21.375."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One pod size an object may be drawn with."""

    weight: float = item("how often", low=0)
    resources: Amounts = item("the pod's resources")


@dataclass(frozen=True, slots=True, kw_only=True)
class Archetype:
    """One kind of workload object."""

    name: str = item("its name")
    weight: int = item("share of the objects", low=0)
    pods_per_node: int = item("packing density", low=1)
    instance_types: tuple[str, ...] = item("instance types it may run on")
    zones: tuple[str, ...] = item("zones it may run in")
    sizes: tuple[Size, ...] = item("pod sizes")
    priority: int = item("priority")
    interruption_penalty: Dollars = item("dollars an interruption costs")
    reclamation_penalty: Dollars = item("dollars a planned move costs")
    lifetime: Nanoseconds | None = item("mean lifetime; for ever when left out", default=None)
    same: Colocation = item("co-location of one object's pods", default=Colocation.NONE)
    group_size: tuple[int, int] = item("fewest and most pods of a gang", default=(1, 1))
    burst_only: bool = item("never part of the steady demand", default=False)
    spread_share: float = item("share of objects that carry the spread", default=0.0, low=0, high=1)
    spread_skew: int = item("the spread's skew", default=1, low=1)
    spread_hard: bool = item("whether the spread is strict", default=False)

    def shape(self, size: Size, spread: bool) -> PodShape:
        when = Unsatisfiable.DO_NOT_SCHEDULE if self.spread_hard else Unsatisfiable.SCHEDULE_ANYWAY
        return PodShape(
            resources=size.resources,
            priority=self.priority,
            interruption_penalty=self.interruption_penalty,
            reclamation_penalty=self.reclamation_penalty,
            instance_types=self.instance_types,
            zones=self.zones,
            same=self.same,
            spread=(SpreadSpec(max_skew=self.spread_skew, when=when),) if spread else (),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchetypeCatalogue:
    """A catalogue."""

    archetypes: tuple[Archetype, ...] = item("the archetypes")


@dataclass(frozen=True, slots=True)
class Drawn:
    """One object."""

    archetype: str
    shape_name: str
    shape: PodShape
    pods: int
    lifetime: int | None


@functools.cache
def realistic() -> ArchetypeCatalogue:
    """The `realistic` catalogue."""
    text = resources.files(__package__).joinpath("archetypes.yaml").read_text(encoding="utf-8")
    return load(ArchetypeCatalogue, text, "archetypes.yaml")


def draw(pods: int, only: tuple[str, ...], exclude: tuple[str, ...], dice: random.Random) -> Iterator[Drawn]:
    """Objects until there are so many pods; those that come in bursts only when they are asked for by name."""
    usable = [
        each
        for each in realistic().archetypes
        if (each.name in only if only else not each.burst_only) and each.name not in exclude
    ]
    weights = [each.weight for each in usable]
    drawn = 0
    while drawn < pods:
        archetype = dice.choices(usable, weights)[0]
        number = dice.choices(range(len(archetype.sizes)), [size.weight for size in archetype.sizes])[0]
        spread = dice.random() < archetype.spread_share
        gang = archetype.same is not Colocation.NONE
        count = dice.randint(*archetype.group_size) if gang else min(dice.choice(REPLICAS), pods - drawn)
        lifetime = None if archetype.lifetime is None else int(dice.expovariate(1.0) * archetype.lifetime)
        name = f"{archetype.name}/{number}{'/spread' if spread else ''}"
        yield Drawn(archetype.name, name, archetype.shape(archetype.sizes[number], spread), count, lifetime)
        drawn += count
