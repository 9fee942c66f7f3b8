"""Machines: the record, its lifecycle as two tables, and the invariants every record must keep.

DRIVEN_EDGES is what we may do to a machine; OBSERVED_EDGES is what a provider may show us between two looks, where
states can be skipped and a host can vanish from under us. docs/machine-states.md is generated from both.
Owns no clock and no inventory: whoever keeps machines decides what to do about an edge or a violation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from bigfleet.model.assignment import NO_ASSIGNMENT, Assignment
from bigfleet.model.names import INSTANCE_TYPE_LABEL, ZONE_LABEL
from bigfleet.model.resources import Resources
from bigfleet.model.taint import Taint


class MachineState(IntEnum):
    """Numbers are those of the wire; its 0, unspecified, is no state a machine can be in."""

    SPECULATIVE = 1
    CREATING = 2
    IDLE = 3
    CONFIGURING = 4
    CONFIGURED = 5
    DRAINING = 6
    DELETING = 7
    FAILED = 8

    label: str
    """Its name in metrics, logs and documents: `Speculative`, …"""

    def __init__(self, number: int) -> None:
        self.label = self._name_.capitalize()


class CapacityType(IntEnum):
    """Numbers are those of the wire."""

    UNSPECIFIED = 0
    BARE_METAL = 1
    RESERVED = 2
    ON_DEMAND = 3
    SPOT = 4


_S = MachineState
STABLE: Final = frozenset({_S.SPECULATIVE, _S.IDLE, _S.CONFIGURED})
# States in which a machine belongs to a cluster.
BOUND: Final = frozenset({_S.CONFIGURING, _S.CONFIGURED, _S.DRAINING})

Edge = tuple[MachineState, MachineState]
# None is the provider not listing the machine at all.
Sighting = tuple[MachineState | None, MachineState | None]

DRIVEN_EDGES: Final[Mapping[Edge, str]] = MappingProxyType(
    {
        (_S.SPECULATIVE, _S.CREATING): "Create",
        (_S.CREATING, _S.IDLE): "host attached",
        (_S.CREATING, _S.FAILED): "Create failed",
        (_S.IDLE, _S.CONFIGURING): "Configure",
        (_S.IDLE, _S.DELETING): "Delete",
        (_S.CONFIGURING, _S.CONFIGURED): "node ready",
        (_S.CONFIGURING, _S.FAILED): "Configure failed",
        (_S.CONFIGURING, _S.IDLE): "given up before the provider was asked",
        (_S.CONFIGURED, _S.DRAINING): "Drain",
        (_S.DRAINING, _S.IDLE): "drained",
        (_S.DRAINING, _S.FAILED): "Drain failed",
        (_S.DELETING, _S.SPECULATIVE): "host released",
        (_S.DELETING, _S.FAILED): "Delete failed",
    }
)

# Sightings no action of ours explains. An entry per pair, because each has its own reason to be believed.
UNPROMPTED_EDGES: Final[dict[Sighting, str]] = {
    (_S.SPECULATIVE, _S.IDLE): "created between two looks",
    (_S.SPECULATIVE, _S.FAILED): "Create failed between two looks",
    (_S.CREATING, _S.SPECULATIVE): "Create undone by the provider",
    (_S.IDLE, _S.CONFIGURED): "configured between two looks",
    (_S.IDLE, _S.SPECULATIVE): "host lost or deleted between two looks",
    (_S.IDLE, _S.FAILED): "host broke",
    (_S.CONFIGURING, _S.SPECULATIVE): "host lost",
    (_S.CONFIGURED, _S.IDLE): "binding lost or drained between two looks",
    (_S.CONFIGURED, _S.SPECULATIVE): "host lost",
    (_S.CONFIGURED, _S.FAILED): "host broke",
    (_S.DRAINING, _S.CONFIGURED): "drain not begun or undone by the provider",
    (_S.DRAINING, _S.SPECULATIVE): "host lost",
    (_S.DELETING, _S.IDLE): "Delete undone by the provider",
    # Failed may be our own verdict, a timeout for example: the provider knows better what became of the machine.
    **{(_S.FAILED, state): "recovered at the provider" for state in MachineState if state is not _S.FAILED},
    **{(state, None): "machine vanished" for state in MachineState},
    **{(None, state): "machine appeared" for state in MachineState},
}
OBSERVED_EDGES: Final[Mapping[Sighting, str]] = MappingProxyType(
    {**dict[Sighting, str](DRIVEN_EDGES.items()), **UNPROMPTED_EDGES}
)


# (host set, cluster set) per state; None where both are accepted.
SHAPES: Final[Mapping[int, tuple[bool | None, bool | None]]] = {
    _S.SPECULATIVE: (False, False),
    _S.CREATING: (False, False),
    _S.IDLE: (True, False),
    _S.CONFIGURING: (True, None),
    _S.CONFIGURED: (True, True),
    _S.DRAINING: (True, True),
    _S.DELETING: (True, False),
    _S.FAILED: (None, None),
}


class HostRef(NamedTuple):
    """A real host, by provider and the provider's own id for it; both empty when there is none."""

    provider: str = ""
    ref: str = ""

    @property
    def present(self) -> bool:
        return bool(self.provider or self.ref)


NO_HOST: Final = HostRef()


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine or quota slot as its provider describes it; the id stays for the whole life."""

    id: str
    state: MachineState
    instance_type: str = ""
    zone: str = ""
    capacity_type: CapacityType = CapacityType.UNSPECIFIED
    price_per_hour: float = 0.0
    interruption_probability: float = 0.0
    resources: Resources = Resources.ZERO
    allocatable: Resources = Resources.ZERO
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    taints: tuple[Taint, ...] = ()
    host: HostRef = NO_HOST
    cluster: str = ""
    assignment: Assignment = NO_ASSIGNMENT
    last_error: str = ""

    @property
    def effective_allocatable(self) -> Resources:
        """What it offers: `allocatable`, or the base shape when the provider does not say."""
        return self.resources if self.allocatable.is_zero else self.allocatable

    def attribute(self, key: str) -> str | None:
        """The value a requirement on this key is judged by; None when the machine has none."""
        if key == INSTANCE_TYPE_LABEL and self.instance_type:
            return self.instance_type
        if key == ZONE_LABEL and self.zone:
            return self.zone
        return self.labels.get(key)


_WANTED: Final = {True: "set", False: "empty"}

PRICE: Final = "price"
INTERRUPTION_PROBABILITY: Final = "interruption_probability"
STRUCTURAL: Final = "structural"


class Violation(NamedTuple):
    """A broken invariant: the label it is counted under and a sentence for the log."""

    reason: str
    detail: str


def violations(machine: Machine) -> tuple[str, ...]:
    """The reasons to refuse the record, each once: `price`, `interruption_probability`, `structural`."""
    return tuple(dict.fromkeys(violation.reason for violation in explain_violations(machine)))


def explain_violations(machine: Machine) -> tuple[Violation, ...]:
    """Every broken invariant with its sentence; empty for a good record."""
    found = []
    price, probability = machine.price_per_hour, machine.interruption_probability
    if not (price >= 0 and math.isfinite(price)):
        found.append(Violation(PRICE, f"price_per_hour is {price}; a finite number of at least 0 is accepted"))
    if not 0 <= probability <= 1:
        found.append(
            Violation(INTERRUPTION_PROBABILITY, f"interruption_probability is {probability}; 0 to 1 is accepted")
        )
    found.extend(Violation(STRUCTURAL, detail) for detail in _structure(machine))
    return tuple(found)


def _structure(machine: Machine) -> list[str]:
    found = []
    if not machine.id:
        found.append("id is empty; every machine needs one")
    if machine.state not in SHAPES:
        found.append(f"state is {int(machine.state)}; 1 to 8 are accepted")
        return found
    host, cluster = SHAPES[machine.state]
    state = MachineState(machine.state).label
    if host is not None and machine.host.present != host:
        found.append(f"host is {'/'.join(machine.host)!r} in state {state}; it must be {_WANTED[host]}")
    if cluster is not None and bool(machine.cluster) != cluster:
        found.append(f"cluster is {machine.cluster!r} in state {state}; it must be {_WANTED[cluster]}")
    if machine.state == _S.FAILED and not machine.last_error:
        found.append("last_error is empty in state Failed; it must say what failed")
    return found
