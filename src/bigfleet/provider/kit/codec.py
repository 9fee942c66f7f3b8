"""Machine records as wire bytes, encoded once per change.

A protobuf message may be written in pieces: the bytes of a machine are its own few fields followed by the bytes of
its shape, which identical machines share. A List is then a join of cached bytes, so 100,000 machines cost no
encoding at all on repeat.
"""

from __future__ import annotations

from collections.abc import Iterable

from bigfleet.provider.kit.core.fleet import Page
from bigfleet.provider.kit.core.records import MachineRecord, Shape
from bigfleet.wire import provider_pb2 as pb

_LIST_MACHINE = b"\x0a"  # MachineList.machines, field 1, length-delimited
_ACK_MACHINE = b"\x12"  # TransitionAck.machine, field 2, length-delimited


class MachineCodec:
    """Turns records into bytes; keeps the frame of every record it has seen last."""

    def __init__(self) -> None:
        self._frames: dict[str, tuple[MachineRecord, bytes]] = {}
        self._shapes: dict[int, tuple[Shape, bytes]] = {}

    def machine(self, record: MachineRecord) -> bytes:
        """The bytes of one Machine."""
        own = pb.Machine(
            id=record.id,
            state=pb.MachineState.ValueType(record.state.value),
            cluster=record.cluster,
            last_error=record.last_error,
            interruption_at_unix_nanos=round(record.interruption_at * 1e9),
        )
        if record.host is not None:
            own.host.provider, own.host.ref = record.host.provider, record.host.ref
        if record.metadata:
            own.shard_metadata.update(record.metadata)
        return own.SerializeToString() + self._shape(record.shape)

    def acknowledgement(self, operation_id: str, record: MachineRecord) -> bytes:
        """The bytes of one TransitionAck."""
        return pb.TransitionAck(operation_id=operation_id).SerializeToString() + _framed(
            _ACK_MACHINE, self.machine(record)
        )

    def page(self, page: Page) -> bytes:
        """The bytes of one MachineList."""
        rest = pb.MachineList(revision=page.cursor, more=page.more, removed_ids=page.removed_ids)
        frames = self._frames_of(page.machines)
        frames.append(rest.SerializeToString())
        return b"".join(frames)

    def warm(self, records: Iterable[MachineRecord]) -> None:
        """Encode ahead, so that the first List is as cheap as the next."""
        self._frames_of(records)

    def forget(self, machine_id: str) -> None:
        self._frames.pop(machine_id, None)

    def _frames_of(self, records: Iterable[MachineRecord]) -> list[bytes]:
        known = self._frames
        frames = []
        for record in records:
            kept = known.get(record.id)
            if kept is None or kept[0] is not record:
                kept = known[record.id] = (record, _framed(_LIST_MACHINE, self.machine(record)))
            frames.append(kept[1])
        return frames

    def _shape(self, shape: Shape) -> bytes:
        # Shapes are interned by the core, so identity is enough and spares hashing whole label maps.
        kept = self._shapes.get(id(shape))
        if kept is None or kept[0] is not shape:
            kept = self._shapes[id(shape)] = (shape, _shape_message(shape).SerializeToString())
        return kept[1]


def _shape_message(shape: Shape) -> pb.Machine:
    message = pb.Machine(
        instance_type=shape.instance_type,
        zone=shape.zone,
        capacity_type=pb.CapacityType.ValueType(shape.capacity_type.value),
        price_per_hour=shape.price_per_hour,
        interruption_probability=shape.interruption_probability,
        labels=dict(shape.labels),
        taints=[pb.Taint(key=taint.key, value=taint.value, effect=taint.effect) for taint in shape.taints],
    )
    if shape.resources:
        message.resources.resources.update(shape.resources)
    if shape.allocatable:
        message.allocatable.resources.update(shape.allocatable)
    return message


def _framed(tag: bytes, body: bytes) -> bytes:
    length = len(body)
    size = bytearray()
    while length > 0x7F:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    size.append(length)
    return tag + bytes(size) + body
