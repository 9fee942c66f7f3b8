"""The record reader agrees with protobuf on every frame, and refuses bytes that are no frame with a FrameError."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.provider.client.frames import FrameError, MachineFrame, machine_id_of
from bigfleet.wire import provider_pb2 as pb

text = st.text(max_size=200)
machines = st.builds(
    lambda id, state, zone, labels, price: pb.Machine(
        id=id, state=state, zone=zone, labels=labels, price_per_hour=price
    ),
    text,
    st.integers(0, 8),
    text,
    st.dictionaries(text, text, max_size=4),
    st.floats(allow_nan=False),
)
frames = st.builds(
    lambda machines, revision, more, removed: pb.MachineList(
        machines=machines, revision=revision, more=more, removed_ids=removed
    ),
    st.lists(machines, max_size=12),
    st.binary(max_size=300),
    st.booleans(),
    st.lists(text, max_size=4),
)


@given(frames, st.integers(1, 5))
def test_reading_in_slices_gives_what_protobuf_gives(message: pb.MachineList, size: int) -> None:
    frame = MachineFrame(message.SerializeToString())
    records: list[bytes] = []
    while taken := frame.take(size):
        assert len(taken) <= size
        records += taken
    assert [pb.Machine.FromString(record) for record in records] == list(message.machines)
    assert [machine_id_of(record) for record in records] == [machine.id.encode() for machine in message.machines]
    assert frame.revision == message.revision
    assert frame.more == message.more
    assert frame.removed_ids == list(message.removed_ids)


@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_read_or_refused_but_never_crash(data: bytes) -> None:
    frame = MachineFrame(data)
    try:
        while records := frame.take(10):
            for record in records:
                machine_id_of(record)
    except FrameError:
        pass


@given(frames, st.data())
def test_a_truncated_frame_never_yields_a_record_that_was_not_sent(
    message: pb.MachineList, data: st.DataObject
) -> None:
    whole = message.SerializeToString()
    frame = MachineFrame(whole[: data.draw(st.integers(0, len(whole)))])
    sent = [machine.SerializeToString() for machine in message.machines]
    received: list[bytes] = []
    try:
        while records := frame.take(3):
            received += records
    except FrameError:
        pass
    assert received == sent[: len(received)]


@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 16_383, 16_384, 20_000, 3_000_000])
def test_records_of_every_length_are_read_whole(size: int) -> None:
    message = pb.MachineList(machines=[pb.Machine(id="m-1", last_error="x" * size), pb.Machine(id="m-2")])
    records = MachineFrame(message.SerializeToString()).take(10)
    assert [pb.Machine.FromString(record) for record in records] == list(message.machines)


def test_unknown_fields_of_a_newer_provider_are_skipped() -> None:
    unknown = bytes([0xF2, 0x3F, 3]) + b"new" + bytes([0xF8, 0x3F, 7])  # fields 1022 and 1023
    machine = pb.Machine(id="m-1").SerializeToString()
    frame = MachineFrame(unknown + bytes([10, len(machine)]) + machine + unknown)
    assert frame.take(10) == [machine]
    assert frame.take(10) == []


def test_an_id_that_is_not_the_first_field_is_found() -> None:
    record = pb.Machine(zone="z").SerializeToString() + pb.Machine(id="m-1").SerializeToString()
    assert machine_id_of(record) == b"m-1"
    assert machine_id_of(pb.Machine(zone="z").SerializeToString()) == b""


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x0a", "runs past|ends inside"),
        (b"\x0a\x05abc", "runs past"),
        (b"\x08\x01", "field 1 is not a message"),
        (b"\x00\x01", "field number 0"),
        (b"\x13", "wire type 3"),
        (b"\x12" + b"\xff" * 11, "longer than 64 bits"),
        (b"\xca\x3e\x01\xff", "not valid UTF-8"),
    ],
)
def test_what_is_no_frame_is_refused_with_the_reason(data: bytes, message: str) -> None:
    with pytest.raises(FrameError, match=message):
        MachineFrame(data).take(10)
