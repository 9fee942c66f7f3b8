"""The pretend fleet a scale test asks for: seeds, archetypes, misfortune, as a catalogue of the fake provider.

Knows the settings and the archetype file; the fake does the pretending. Without any seed the chosen catalogue stays.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import structlog
import yaml

from bigfleet.model.machine import CapacityType
from bigfleet.model.quantity import QuantityError, from_units, to_units
from bigfleet.provider.fake.catalogue import Catalogue, Misfortune, Scheduled, builtin_catalogue, load_catalogue
from bigfleet.provider.fake.commands import Choice, ShrinkQuota
from bigfleet.provider.fake.fields import CatalogueError
from bigfleet.provider.fake.offerings import Offering
from bigfleet.shard.contract.config import ConfigError, parse_duration
from bigfleet.shard.settings import ProcessSettings
from bigfleet.yaml_text import read_yaml

log = structlog.get_logger(__name__)

CREATE_LATENCY = "BIGFLEET_FAKE_CREATE_LATENCY"
# Machines that are bound from the start, and to whom: the names of the scale harness.
BOUND = "bound"
CLUSTER = "kwok-cluster-{}"
_ZONE = "zone-a"
_RACKS = 10
_BLOCK = 8
_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Archetype:
    """One kind of machine of the seeded fleet; `block` neighbours share a rack."""

    name: str = ""
    weight: float = 1.0
    instance_type: str = "m6i.large"
    zones: tuple[str, ...] = (_ZONE,)
    resources: tuple[tuple[str, str], ...] = (("cpu", "2"), ("memory", "8Gi"))
    block: int = 1


def seeded_catalogue(name: str, settings: ProcessSettings, shard_id: str) -> Catalogue:
    """What the pretend provider of this shard offers."""
    try:
        chosen = load_catalogue(Path(settings.catalogue)) if settings.catalogue else builtin_catalogue()
    except CatalogueError as error:
        raise ConfigError(f"catalogue: {error}") from error
    archetypes = read_archetypes(Path(settings.archetypes)) if settings.archetypes else (Archetype(),)
    bound = settings.seed_configured_per_cluster * len(owned_clusters(settings, shard_id))
    seeds = (
        ("idle", CapacityType.RESERVED, settings.seed_machines, True, 0.1, 0.0),
        (BOUND, CapacityType.RESERVED, bound, True, 0.1, 0.0),
        ("spec", CapacityType.ON_DEMAND, settings.seed_speculative, False, 1.0, 0.05),
        ("spot", CapacityType.SPOT, settings.seed_spot, False, 0.3, 0.3),
    )
    offerings = tuple(
        _offering(prefix, kind, archetype, count, exists, price, risk, settings.seed_density_multiplier)
        for prefix, kind, total, exists, price, risk in seeds
        for archetype, count in zip(archetypes, shares(total, archetypes), strict=True)
        if count
    )
    catalogue = replace(chosen, provider=name, offerings=offerings or chosen.offerings)
    if settings.failure_rate_per_sec:
        luck = Misfortune(losses_per_hour=settings.failure_rate_per_sec * _HOUR, broken_share=1.0)
        catalogue = replace(catalogue, misfortune=luck)
    if settings.speculative_shed_at_seconds and 0 < settings.speculative_shed_multiplier < 1:
        shed = ShrinkQuota(Choice(fraction=1 - settings.speculative_shed_multiplier))
        when = Scheduled(float(settings.speculative_shed_at_seconds), shed)
        catalogue = replace(catalogue, schedule=(*catalogue.schedule, when))
    return _with_create_latency(catalogue)


def owned_clusters(settings: ProcessSettings, shard_id: str) -> list[str]:
    """Clusters of the harness whose bound machines this shard starts with."""
    if not settings.seed_configured_per_cluster:
        return []
    ordinal, stride = shard_ordinal(shard_id), max(1, settings.seed_cluster_stride)
    return [
        CLUSTER.format(number) for number in range(settings.seed_cluster_total) if number % stride == ordinal % stride
    ]


def shard_ordinal(shard_id: str) -> int:
    """The number at the end of an id such as `shard-2`."""
    _, dash, number = shard_id.rpartition("-")
    if not (dash and number.isascii() and number.isdecimal()):
        raise ConfigError(f"id is {shard_id!r}; with seed-configured-per-cluster it must end in -NUMBER, as in shard-0")
    return int(number)


def shares(total: int, archetypes: tuple[Archetype, ...]) -> list[int]:
    """`total` machines by weight; they add up exactly."""
    weight, upto, given, made = sum(each.weight for each in archetypes), 0.0, 0, []
    for each in archetypes:
        upto += each.weight
        made.append(round(total * upto / weight) - given)
        given += made[-1]
    return made


def read_archetypes(path: Path) -> tuple[Archetype, ...]:
    """The list in the file, or its list `seed` or `archetypes`; what only demand needs is not looked at."""
    try:
        document = read_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"archetypes {path} cannot be read: {' '.join(str(error).split())}") from error
    if isinstance(document, Mapping):
        document = document.get("seed") or document.get("archetypes")
    if not isinstance(document, list) or not document:
        raise ConfigError(f"archetypes {path} holds no list of archetypes, alone or under seed or archetypes")
    return tuple(_archetype(f"archetypes {path}[{number}]", entry) for number, entry in enumerate(document))


def _archetype(where: str, entry: Any) -> Archetype:
    if not isinstance(entry, Mapping) or not entry.get("name"):
        raise ConfigError(f"{where} has no name; a mapping with a name is accepted")
    plain, types = Archetype(), entry.get("instanceTypes") or [Archetype().instance_type]
    try:
        weight = float(entry.get("weight", 1))
        sizes = {str(key): str(value) for key, value in (entry.get("resources") or dict(plain.resources)).items()}
        for key, text in sizes.items():
            to_units(key, text, round_up=False)
        largest = max((int(size) for size in entry.get("groupSizeRange") or ()), default=_BLOCK)
    except (QuantityError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{where} ({entry['name']}): {error}") from error
    if not weight > 0:
        raise ConfigError(f"{where} ({entry['name']}): weight is {weight:g}; more than 0 is accepted")
    return Archetype(
        str(entry["name"]).lower(),
        weight,
        str(types[0]),
        tuple(map(str, entry.get("zones") or plain.zones)),
        tuple(sizes.items()),
        max(1, largest) if entry.get("sameRack") else 1,
    )


def _offering(
    prefix: str,
    kind: CapacityType,
    archetype: Archetype,
    count: int,
    exists: bool,
    price: float,
    risk: float,
    density: int,
) -> Offering:
    sizes = dict(archetype.resources)
    allocatable = {key: from_units(key, density * to_units(key, text, round_up=False)) for key, text in sizes.items()}
    return Offering(
        name=f"{prefix}-{archetype.name}" if archetype.name else prefix,
        instance_type=archetype.instance_type,
        capacity_type=kind,
        count=count,
        zones=archetype.zones,
        racks=_RACKS if archetype.name else 0,
        price_per_hour=price,
        interruption_probability=risk,
        hosts=count if exists else 0,
        resources=sizes,
        allocatable=allocatable if density > 1 else {},
        rack_block=archetype.block,
    )


def _with_create_latency(catalogue: Catalogue) -> Catalogue:
    text = os.environ.get(CREATE_LATENCY, "")
    if not text:
        return catalogue
    try:
        latency = catalogue.latencies.create.fixed(parse_duration(CREATE_LATENCY, text))
    except ConfigError as error:
        log.warning("create latency ignored", err=str(error))
        return catalogue
    return replace(catalogue, latencies=replace(catalogue.latencies, create=latency))
