"""Whether a machine would serve a need, by the engine's rules; for the few questions asked outside a step."""

from __future__ import annotations

from bigfleet.engine.batches import Shape
from bigfleet.model.names import HOSTNAME_LABEL
from bigfleet.model.profile import Profile
from bigfleet.model.resources import Resources
from bigfleet.model.taint import tolerates
from bigfleet.shard.core.state.fleet import Record


def serves(record: Record, profile: Profile, unit: Resources, overhead: Resources = Resources.ZERO) -> bool:
    """Whether the machine could be used for a need of this profile and unit, where nodes lose `overhead`."""
    return shape_serves(record.shape, profile, unit, overhead, record.key)


def shape_serves(
    shape: Shape, profile: Profile, unit: Resources, overhead: Resources = Resources.ZERO, machine: str = ""
) -> bool:
    """The same of a kind of machine, of which none is meant in particular."""
    return (
        shape.allocatable.minus(overhead).covers(unit)
        and tolerates(profile.tolerations, shape.taints)
        and profile.matches(lambda key: attribute(machine, shape, key))
    )


def attribute(machine: str, shape: Shape, key: str) -> str | None:
    """The value a requirement on this key is judged by (docs/engine.md, Lookup)."""
    return machine if key == HOSTNAME_LABEL else shape.label(key)


def parse_canonical(text: str) -> Resources:
    """The vector a need's key spells out."""
    return Resources(
        {name: int(amount) for name, _, amount in (part.rpartition("=") for part in text.split(",") if part)}
    )
