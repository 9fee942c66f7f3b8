"""Every message survives encoding, keeps what it does not understand, and passes unharmed through older peers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given, settings
from hypothesis import strategies as st

from bigfleet.wire import capacity_pb2, coordinator_pb2, provider_pb2, shard_pb2, shardread_pb2
from tools.wire_contract import PACKAGE, base_files, read_rows

PROTO = Path(__file__).resolve().parents[2] / "proto"
BASE = read_rows(PROTO / "base.csv")
MODULES = (capacity_pb2, provider_pb2, shard_pb2, coordinator_pb2, shardread_pb2)
OURS: dict[str, type[Message]] = {
    name: message_factory.GetMessageClass(descriptor)
    for module in MODULES
    for name, descriptor in module.DESCRIPTOR.message_types_by_name.items()
}

# A peer built from the base table alone: it has never heard of any extension.
_POOL = descriptor_pool.DescriptorPool()
_POOL.AddSerializedFile(base_files(BASE).SerializeToString())
THEIRS: dict[str, type[Message]] = {
    row.owner: message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.{row.owner}"))
    for row in BASE
    if row.kind == "message"
}

INT32 = st.integers(-(2**31), 2**31 - 1)
SCALARS: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_STRING: st.text(max_size=6),
    FieldDescriptor.TYPE_BYTES: st.binary(max_size=6),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_INT32: INT32,
    FieldDescriptor.TYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_DOUBLE: st.floats(allow_nan=False),
    FieldDescriptor.TYPE_ENUM: INT32,  # proto3 enums are open: a value nobody has named yet must survive
}
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

EXAMPLES = settings(max_examples=25, deadline=None)


def messages(descriptor: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Field name -> value for a message, each field present or not."""
    return st.fixed_dictionaries({}, optional={field.name: values(field) for field in descriptor.fields})


def values(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        entry = field.message_type.fields_by_name
        return st.dictionaries(single(entry["key"]), single(entry["value"]), max_size=2)
    return st.lists(single(field), max_size=2) if field.is_repeated else single(field)


def single(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.message_type is not None:
        return st.deferred(lambda: messages(field.message_type))
    return SCALARS[field.type]


def fill(kind: type[Message], content: dict[str, Any]) -> Message:
    """Set fields one by one in number order, so that the last member of a oneof wins as on the wire."""
    message = kind()
    for name, value in content.items():
        field = message.DESCRIPTOR.fields_by_name[name]
        sub: Any = field.message_type
        if sub is not None and sub.GetOptions().map_entry:
            getattr(message, name).update(value)
        elif field.is_repeated:
            items = [fill(message_factory.GetMessageClass(sub), item) for item in value] if sub is not None else value
            getattr(message, name).extend(items)
        elif sub is not None:
            getattr(message, name).CopyFrom(fill(message_factory.GetMessageClass(sub), value))
            getattr(message, name).SetInParent()
        else:
            setattr(message, name, value)
    return message


def parse(kind: type[Message], data: bytes) -> Message:
    message = kind()
    message.ParseFromString(data)
    return message


@st.composite
def unknown_fields(draw: st.DrawFn) -> list[tuple[int, int, bytes]]:
    """(number, wire type, payload) of fields that no table names."""
    number = st.one_of(st.integers(500, 999), st.integers(1500, 18999), st.integers(20000, 2**29 - 1))
    payload = {
        VARINT: st.integers(0, 127).map(lambda value: bytes([value])),
        FIXED64: st.binary(min_size=8, max_size=8),
        LENGTH: st.binary(max_size=9).map(lambda data: bytes([len(data)]) + data),
        FIXED32: st.binary(min_size=4, max_size=4),
    }
    kinds = st.sampled_from(sorted(payload))
    drawn = draw(st.lists(st.tuples(number, kinds), min_size=1, max_size=3, unique_by=lambda pair: pair[0]))
    return [(field, kind, draw(payload[kind])) for field, kind in drawn]


def encode(fields: list[tuple[int, int, bytes]]) -> bytes:
    return b"".join(varint(number << 3 | kind) + payload for number, kind, payload in fields)


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@pytest.mark.parametrize("name", sorted(OURS))
def test_round_trip(name: str) -> None:
    kind = OURS[name]

    @EXAMPLES
    @given(content=messages(kind.DESCRIPTOR))
    def check(content: dict[str, Any]) -> None:
        message = fill(kind, content)
        data = message.SerializeToString(deterministic=True)
        decoded = parse(kind, data)
        assert decoded == message
        assert decoded.SerializeToString(deterministic=True) == data

    check()


@pytest.mark.parametrize("name", sorted(OURS))
def test_unknown_fields_survive_decoding_and_encoding(name: str) -> None:
    kind = OURS[name]

    @EXAMPLES
    @given(content=messages(kind.DESCRIPTOR), unknown=unknown_fields())
    def check(content: dict[str, Any], unknown: list[tuple[int, int, bytes]]) -> None:
        message = fill(kind, content)
        decoded = parse(kind, message.SerializeToString() + encode(unknown))
        again = parse(kind, decoded.SerializeToString())
        fields: Any = UnknownFieldSet(again)
        kept = {field.field_number for field in fields}
        assert kept == {number for number, _, _ in unknown}
        assert parse(kind, encode(unknown)).SerializeToString() in decoded.SerializeToString()
        again.DiscardUnknownFields()
        assert again == message

    check()


@pytest.mark.parametrize("name", sorted(THEIRS))
def test_a_peer_without_our_extensions_hands_them_back_untouched(name: str) -> None:
    ours, theirs = OURS[name], THEIRS[name]

    @EXAMPLES
    @given(content=messages(ours.DESCRIPTOR))
    def check(content: dict[str, Any]) -> None:
        message = fill(ours, content)
        seen = parse(theirs, message.SerializeToString())
        assert parse(ours, seen.SerializeToString()) == message
        for field in theirs.DESCRIPTOR.fields:
            if field.message_type is None and not field.is_repeated:
                assert getattr(seen, field.name) == getattr(message, field.name)

    check()


@pytest.mark.parametrize("name", sorted(THEIRS))
def test_we_understand_a_peer_without_our_extensions(name: str) -> None:
    ours, theirs = OURS[name], THEIRS[name]

    @EXAMPLES
    @given(content=messages(theirs.DESCRIPTOR))
    def check(content: dict[str, Any]) -> None:
        data = fill(theirs, content).SerializeToString(deterministic=True)
        decoded = parse(ours, data)
        assert decoded == fill(ours, content)
        assert decoded.SerializeToString(deterministic=True) == data

    check()


# What peers of earlier generations still send on numbers that are reserved today.
RETIRED = [
    ("CapacityNeed", 4, VARINT, b"\x07"),
    ("Hello", 2, LENGTH, b"\x05drain"),
    ("NodeStateUpdate", 7, VARINT, b"\x80\x01"),
    ("AvailableCapacityUpdate", 7, VARINT, b"\x01"),
    ("AvailableCapacityUpdate", 8, VARINT, b"\x3c"),
    ("AvailableCapacityUpdate", 9, LENGTH, b"\x06\x0a\x01k\x12\x01v"),
    ("Machine", 11, VARINT, b"\x01"),
    ("ListFilter", 2, LENGTH, b"\x01a"),
    ("ListFilter", 3, LENGTH, b"\x01b"),
    ("CreateRequest", 2, LENGTH, b"\x06\x0a\x01k\x12\x01v"),
    ("ShardSummary", 5, FIXED64, bytes(8)),
    ("ShardSummary", 6, FIXED64, bytes(8)),
    ("Shortfall", 4, VARINT, b"\x02"),
]


def test_the_retired_list_covers_every_reserved_number() -> None:
    reserved = {(row.owner, int(row.number)) for row in BASE if row.kind == "reserved"}
    assert {(name, number) for name, number, _, _ in RETIRED} == reserved


@pytest.mark.parametrize(("name", "number", "wire_type", "payload"), RETIRED)
def test_reserved_numbers_from_old_peers_are_ignored(name: str, number: int, wire_type: int, payload: bytes) -> None:
    kind = OURS[name]

    @EXAMPLES
    @given(content=messages(kind.DESCRIPTOR))
    def check(content: dict[str, Any]) -> None:
        message = fill(kind, content)
        decoded = parse(kind, encode([(number, wire_type, payload)]) + message.SerializeToString())
        assert [field.name for field, _ in decoded.ListFields()] == [field.name for field, _ in message.ListFields()]
        decoded.DiscardUnknownFields()
        assert decoded == message

    check()
