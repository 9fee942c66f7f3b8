"""The values a provider keeps: hosts, slot shapes, machine records, fencing tokens.

Everything here is immutable. A change to a machine is a new record with a new revision; nothing in this module
decides anything, does I/O or reads a clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec import field as struct_field
from msgspec.structs import replace

from bigfleet.model.machine import BOUND, CALL_DURING, CallKind, CapacityType, MachineState, price_flaw, structure_flaw
from bigfleet.model.names import RESERVED_MACHINE_LABELS
from bigfleet.model.taint import Taint

Pairs = tuple[tuple[str, str], ...]
NO_METADATA: Mapping[str, str] = {}

TEXT_LIMIT = 4096
"""Longest id the kit accepts, in characters: no real id comes near it, and fences are kept per id."""


# The name authors know it by.
Kind = CallKind


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
        flaw = price_flaw(self.price_per_hour, self.interruption_probability)
        if flaw is not None:
            return f"{name}: {flaw.detail}"
        if self.capacity_type == CapacityType.SPOT and self.interruption_probability == 0:
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
    # When the transition under way must have ended, or a machine that is sold out may be tried again; 0 for neither.
    due: float = 0.0
    grace_seconds: int = 0
    # The blob reached the host and its node is waited for.
    delivered: bool = False
    # When the host will be taken away (a notice of the backend); 0 for nobody knows.
    interruption_at: float = 0.0

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
        return CALL_DURING.get(self.state)

    def at_rest(self, state: MachineState) -> MachineRecord:
        """The machine without work."""
        return replace(self, state=state, operation_id="", due=0.0, grace_seconds=0, delivered=False)

    def unbound(self, state: MachineState, host: Host | None) -> MachineRecord:
        """The machine without binding, error or work."""
        return replace(
            self.at_rest(state), host=host, cluster="", metadata=NO_METADATA, last_error="", interruption_at=0.0
        )

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
            self.due,
            self.grace_seconds,
            self.delivered,
            self.interruption_at,
        )

    def violations(self) -> tuple[str, ...]:
        """What the contract's state, host, cluster grid says against this record."""
        found = []
        flaw = structure_flaw(self.id, self.state, self.host_ref, self.cluster, self.last_error)
        if flaw is not None:
            found.append(f"{self.id}: {flaw.detail}")
        # The kit keeps its own records tighter than it must: it knows what each operation leaves behind.
        if self.state == MachineState.CONFIGURING and not self.cluster:
            found.append(f"{self.id}: CONFIGURING without a cluster")
        if self.metadata and self.state not in BOUND and self.state != MachineState.FAILED:
            found.append(f"{self.id}: {self.state.name} with metadata of a binding")
        if self.last_error and self.state != MachineState.FAILED:
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
