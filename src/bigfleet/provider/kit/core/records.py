"""The values a provider keeps: hosts, slot shapes, machine records, fencing tokens, and the transition table.

Everything here is immutable. A change to a machine is a new record with a new revision; nothing in this module
decides anything, does I/O or reads a clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct
from msgspec import field as struct_field

from bigfleet.model.machine import BOUND, CapacityType, MachineState
from bigfleet.model.names import RESERVED_MACHINE_LABELS
from bigfleet.model.taint import Taint

Pairs = tuple[tuple[str, str], ...]
NO_METADATA: Mapping[str, str] = {}

TEXT_LIMIT = 4096
"""Longest id the kit accepts, in characters: no real id comes near it, and fences are kept per id."""


class Kind(StrEnum):
    """The four operations a shard may ask for."""

    CREATE = "create"
    CONFIGURE = "configure"
    DRAIN = "drain"
    DELETE = "delete"


class Edge(NamedTuple):
    """Where an operation starts, what the machine shows meanwhile, and where it ends."""

    source: MachineState
    via: MachineState
    target: MachineState


TRANSITIONS: Mapping[Kind, Edge] = MappingProxyType(
    {
        Kind.CREATE: Edge(MachineState.SPECULATIVE, MachineState.CREATING, MachineState.IDLE),
        Kind.CONFIGURE: Edge(MachineState.IDLE, MachineState.CONFIGURING, MachineState.CONFIGURED),
        Kind.DRAIN: Edge(MachineState.CONFIGURED, MachineState.DRAINING, MachineState.IDLE),
        Kind.DELETE: Edge(MachineState.IDLE, MachineState.DELETING, MachineState.SPECULATIVE),
    }
)
KIND_OF_TRANSITIONAL: Mapping[MachineState, Kind] = MappingProxyType(
    {edge.via: kind for kind, edge in TRANSITIONS.items()}
)
HOSTLESS = frozenset({MachineState.SPECULATIVE, MachineState.CREATING})


class Host(Struct, frozen=True):
    """The backend's own name for a host."""

    provider: str
    ref: str


class Shape(Struct, frozen=True):
    """What a slot is, apart from its identity and state. Identical machines share one Shape object."""

    instance_type: str
    zone: str = ""
    capacity_type: CapacityType = CapacityType.ON_DEMAND
    price_per_hour: float = 0.0
    interruption_probability: float = 0.0
    resources: Pairs = ()
    allocatable: Pairs = ()
    labels: Pairs = ()
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class Instance:
    """One slot or host as `describe` reports it: without a host it is a slot to buy, with one it is idle."""

    id: str
    instance_type: str
    zone: str = ""
    capacity_type: CapacityType = CapacityType.ON_DEMAND
    price_per_hour: float = 0.0
    interruption_probability: float = 0.0
    resources: Mapping[str, str] = field(default_factory=dict)
    allocatable: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    host: Host | None = None
    state: MachineState | None = None

    def shape(self) -> Shape:
        return Shape(
            self.instance_type,
            self.zone,
            self.capacity_type,
            float(self.price_per_hour),
            float(self.interruption_probability),
            pairs(self.resources),
            pairs(self.allocatable),
            pairs(self.labels),
            tuple(self.taints),
        )

    def resting_state(self) -> MachineState:
        if self.state is not None:
            return self.state
        return MachineState.SPECULATIVE if self.host is None else MachineState.IDLE

    def problem(self, *, require_zone: bool = False) -> str | None:
        """The one sentence that says why this record cannot be published, or None."""
        state = self.resting_state()
        name = self.id[:80]
        if not self.id or len(self.id) > TEXT_LIMIT:
            return f"id {name!r} must have 1 to {TEXT_LIMIT} characters"
        if not self.instance_type:
            return f"{name}: instance_type is empty; name the backend's machine type"
        if self.capacity_type == CapacityType.UNSPECIFIED:
            return f"{name}: capacity_type is unspecified; use bare metal, reserved, on-demand or spot"
        if not self.zone and (require_zone or self.host is not None):
            return f"{name}: zone is empty; every host needs a zone"
        price, risk = self.price_per_hour, self.interruption_probability
        if not (price >= 0 and math.isfinite(price)):
            return f"{name}: price_per_hour {price!r} must be a finite number of dollars, zero or more"
        if not 0 <= risk <= 1:
            return f"{name}: interruption_probability {risk!r} must lie within 0 and 1"
        if self.capacity_type == CapacityType.SPOT and risk == 0:
            return f"{name}: interruption_probability is 0 on a spot slot; declare the forecast, above 0"
        if state not in (MachineState.SPECULATIVE, MachineState.IDLE):
            return f"{name}: state {state.name} cannot be described; only SPECULATIVE and IDLE can"
        if (state == MachineState.SPECULATIVE) != (self.host is None):
            return f"{name}: state {state.name} does not fit host {self.host!r}; idle has one, a slot has none"
        hidden = sorted(RESERVED_MACHINE_LABELS.intersection(self.labels))
        if hidden:
            return f"{name}: label {hidden[0]!r} hides a field of its own; set instance_type, zone or capacity_type"
        return None


class MachineRecord(Struct, frozen=True):
    """One machine as the provider knows it. `slot` says that losing the host gives the quota back."""

    id: str
    state: MachineState
    shape: Shape
    host: Host | None = None
    cluster: str = ""
    metadata: Mapping[str, str] = struct_field(default_factory=lambda: NO_METADATA)
    last_error: str = ""
    revision: int = 0
    operation_id: str = ""
    slot: bool = True

    @property
    def instance_type(self) -> str:
        return self.shape.instance_type

    @property
    def zone(self) -> str:
        return self.shape.zone

    @property
    def capacity_type(self) -> CapacityType:
        return self.shape.capacity_type

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.shape.labels)

    @property
    def resources(self) -> dict[str, str]:
        return dict(self.shape.resources)

    @property
    def host_ref(self) -> str:
        """The backend's name of the host, empty without one."""
        return self.host.ref if self.host else ""

    @property
    def transition(self) -> Kind | None:
        """The operation under way, if any."""
        return KIND_OF_TRANSITIONAL.get(self.state)

    def revised(self, shape: Shape, revision: int) -> MachineRecord:
        """The same machine under a new revision; spelled out because every change of every machine passes here."""
        return MachineRecord(
            self.id,
            self.state,
            shape,
            self.host,
            self.cluster,
            self.metadata,
            self.last_error,
            revision,
            self.operation_id,
            self.slot,
        )

    def violations(self) -> tuple[str, ...]:
        """What the contract's state, host, cluster grid says against this record."""
        found = []
        if self.state in HOSTLESS and self.host is not None:
            found.append(f"{self.id}: {self.state.name} with a host")
        if self.state not in HOSTLESS and self.state != MachineState.FAILED and self.host is None:
            found.append(f"{self.id}: {self.state.name} without a host")
        if self.state in BOUND and not self.cluster:
            found.append(f"{self.id}: {self.state.name} without a cluster")
        if self.state not in BOUND and self.state != MachineState.FAILED and (self.cluster or self.metadata):
            found.append(f"{self.id}: {self.state.name} with a binding")
        if (self.state == MachineState.FAILED) != bool(self.last_error):
            found.append(f"{self.id}: {self.state.name} with last_error {self.last_error!r}")
        return tuple(found)


class Token(Struct, frozen=True):
    """A fencing token. All fields unset means the caller does not fence."""

    shard_id: str = ""
    epoch: int = 0
    sequence: int = 0

    @property
    def absent(self) -> bool:
        return not self.shard_id and self.epoch == 0 and self.sequence == 0

    def problem(self) -> str | None:
        if self.absent:
            return None
        if not self.shard_id:
            return "shard_id is empty although shard_epoch or sequence_number is set; send all three or none"
        if len(self.shard_id) > TEXT_LIMIT:
            return f"shard_id has {len(self.shard_id)} characters; at most {TEXT_LIMIT} are accepted"
        if self.epoch < 0:
            return f"shard_epoch {self.epoch} is negative; epochs start at 0"
        if self.sequence < 0:
            return f"sequence_number {self.sequence} is negative; sequences start at 0"
        return None


NO_TOKEN = Token()


def pairs(mapping: Mapping[str, str]) -> Pairs:
    """A hashable form of a string map, in key order."""
    return tuple(sorted(mapping.items()))
