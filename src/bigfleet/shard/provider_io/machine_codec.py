"""Provider records from the wire to `ListedMachine`: quantities in model units, shapes interned.

Half a million machines share a few thousand shapes, so the record without its own fields is the key to a shape that
was made before. Judges nothing but whether a record can be read; invariants are the core's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from bigfleet.engine.batches import Shape
from bigfleet.model.machine import CapacityType, MachineState, node_labels
from bigfleet.model.quantity import QuantityError
from bigfleet.model.resources import MAX_MACHINE_UNITS, ResourceError, Resources
from bigfleet.model.taint import Taint
from bigfleet.shard.contract.events import ListedMachine
from bigfleet.wire import provider_pb2

_STATES = {int(state): state for state in MachineState}
_CAPACITY_TYPES = {int(kind): int(kind) for kind in CapacityType}
_OWN_FIELDS: Final = (
    "id",
    "state",
    "host",
    "cluster",
    "last_error",
    "shard_metadata",
    "interruption_at_unix_nanos",
)
_INTERNED_SHAPES = 1_000_000
_INTERNED_TEXTS = 1_000_000


class RecordError(ValueError):
    """A provider record that cannot be read; the message names the machine and the field."""


@dataclass(frozen=True, slots=True)
class Undecodable:
    """What is left of a record that cannot be read: whose it was, and why."""

    id: str
    problem: str


class MachineDecoder:
    """Reads the records of one provider."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._shapes: dict[bytes, Shape] = {}
        self._texts: dict[str, str] = {}

    def read(self, record: bytes) -> ListedMachine | Undecodable:
        """The machine in a serialised record. For listings: a bad record is a value there, not the end of the List."""
        try:
            message = provider_pb2.Machine.FromString(record)
        except DecodeError as error:
            return Undecodable("", f"a record of {len(record)} bytes does not parse: {error}")
        machine_id = message.id
        try:
            return self.machine(message)
        except RecordError as error:
            return Undecodable(machine_id, str(error))

    def machine(self, message: provider_pb2.Machine) -> ListedMachine:
        """The machine in a parsed record, whose own fields are cleared on the way; raises RecordError."""
        state = _STATES.get(message.state)
        if state is None:
            raise RecordError(f"machine {message.id}: state is {message.state}; 1 to {max(_STATES)} are accepted")
        host = (message.host.ref or message.host.provider) if message.HasField("host") else ""
        metadata = tuple(sorted(message.shard_metadata.items())) if message.shard_metadata else ()
        machine_id, cluster, last_error = message.id, message.cluster, message.last_error
        taken_at = message.interruption_at_unix_nanos
        for name in _OWN_FIELDS:
            message.ClearField(name)
        try:
            shape = self._shape(message)
        except (QuantityError, ResourceError) as error:
            raise RecordError(f"machine {machine_id}: {error}") from None
        return ListedMachine(machine_id, state, shape, host, self._shared(cluster), last_error, metadata, taken_at)

    def _shape(self, message: provider_pb2.Machine) -> Shape:
        key = message.SerializeToString(deterministic=True)
        known = self._shapes.get(key)
        if known is None:
            if len(self._shapes) >= _INTERNED_SHAPES:
                self._shapes.clear()
            known = self._shapes[key] = self._made(message)
        return known

    def _made(self, message: provider_pb2.Machine) -> Shape:
        offered = message.allocatable.resources or message.resources.resources
        # Contract: an unknown capacity type is read as unspecified.
        capacity_type = _CAPACITY_TYPES.get(message.capacity_type, int(CapacityType.UNSPECIFIED))
        return Shape(
            provider=self._provider,
            instance_type=message.instance_type,
            zone=message.zone,
            capacity_type=capacity_type,
            price=message.price_per_hour,
            probability=message.interruption_probability,
            allocatable=Resources.parse(offered, round_up=False, limit=MAX_MACHINE_UNITS),
            labels=node_labels(message.labels, capacity_type),
            taints=tuple(sorted(Taint(taint.key, taint.value, taint.effect) for taint in message.taints)),
        )

    def _shared(self, text: str) -> str:
        """One string object per cluster id instead of one per machine."""
        if len(self._texts) >= _INTERNED_TEXTS:
            self._texts.clear()
        return self._texts.setdefault(text, text) if text else ""
