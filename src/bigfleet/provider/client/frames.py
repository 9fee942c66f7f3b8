"""Reads a serialised MachineList record by record, without parsing the machines in it.

A List of 100,000 machines is about 50 MB; parsing it in one call would hold the event loop for seconds. This reader
hands out record bytes in slices, so that an unchanged machine costs a hash. It knows the wire format and four field
numbers (1 machines, 2 revision, 1000 more, 1001 removed_ids); it never looks inside a machine beyond its id.
"""

from __future__ import annotations


class FrameError(ValueError):
    """The bytes are not a MachineList."""


_MACHINES, _REVISION, _MORE, _REMOVED_IDS = 1, 2, 1000, 1001
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MACHINES_TAG = _MACHINES << 3 | _BYTES
_ID_TAG = 1 << 3 | _BYTES


class MachineFrame:
    """One serialised MachineList: `take` yields the next records; the other fields are known once it is exhausted."""

    __slots__ = ("_at", "_data", "more", "removed_ids", "revision")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self.revision = b""
        self.more = False
        self.removed_ids: list[str] = []

    def take(self, count: int) -> list[bytes]:
        """The next at most `count` machine records; an empty list means the frame has been read to its end."""
        data, at, end = self._data, self._at, len(self._data)
        records: list[bytes] = []
        while at < end and len(records) < count:
            if data[at] == _MACHINES_TAG:
                at += 1
                length = data[at] if at < end else 0
                at += 1
                if length > 0x7F:
                    # Most records are 128 to 16,383 bytes long: their length is read here, without a call.
                    if at < end and data[at] < 0x80:
                        length = length & 0x7F | data[at] << 7
                        at += 1
                    else:
                        length, at = _varint(data, at - 1)
                stop = at + length
                if stop > end:
                    raise FrameError(
                        f"a machine record of {length} bytes at offset {at} runs past the frame's {end} bytes"
                    )
                records.append(data[at:stop])
                at = stop
            else:
                at = self._other_field(at)
        self._at = at
        return records

    def _other_field(self, at: int) -> int:
        number, value, at = _field(self._data, at)
        if number == _MACHINES:
            raise FrameError("field 1 is not a message")
        if number == _REVISION and isinstance(value, bytes):
            self.revision = value
        elif number == _MORE and isinstance(value, int):
            self.more = bool(value)
        elif number == _REMOVED_IDS and isinstance(value, bytes):
            self.removed_ids.append(_text(value))
        return at


def machine_id_of(record: bytes) -> bytes:
    """The id inside a serialised Machine, as its UTF-8 bytes; empty when it carries none."""
    # Every known serialiser writes field 1 first; anything else is walked.
    if len(record) > 2 and record[0] == _ID_TAG and record[1] < 0x80:
        return record[2 : 2 + record[1]]
    at = 0
    found = b""
    while at < len(record):
        number, value, at = _field(record, at)
        if number == 1 and isinstance(value, bytes):
            found = value
    return found


def _field(data: bytes, at: int) -> tuple[int, bytes | int, int]:
    key, at = _varint(data, at)
    number, kind = key >> 3, key & 7
    if number == 0:
        raise FrameError(f"field number 0 at offset {at}")
    if kind == _VARINT:
        value, at = _varint(data, at)
        return number, value, at
    if kind == _BYTES:
        length, at = _varint(data, at)
    elif kind == _FIXED64:
        length = 8
    elif kind == _FIXED32:
        length = 4
    else:
        raise FrameError(f"wire type {kind} of field {number} at offset {at} does not exist in proto3")
    if at + length > len(data):
        raise FrameError(f"field {number} of {length} bytes at offset {at} runs past the frame's {len(data)} bytes")
    return number, data[at : at + length], at + length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    end = len(data)
    while True:
        if at >= end:
            raise FrameError("the frame ends inside a number")
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
        shift += 7
        if shift > 63:
            raise FrameError(f"a number at offset {at} is longer than 64 bits")


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise FrameError(f"an id is not valid UTF-8: {value[:40]!r}") from error
