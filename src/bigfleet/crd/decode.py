"""JSON from the API server to typed objects, pages and watch events.

A watch line is decoded in two steps because ERROR and BOOKMARK events carry something other than the watched
kind: the envelope first, its object only when the event is about one.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from bigfleet.crd.available_capacity import AvailableCapacity
from bigfleet.crd.capacity_request import CapacityRequest
from bigfleet.crd.metadata import ListMeta
from bigfleet.crd.upcoming_node import UpcomingNode

Kind = TypeVar("Kind", CapacityRequest, AvailableCapacity, UpcomingNode)


class DecodeError(ValueError):
    """The JSON is not an object of the wanted kind; the message names the path and what was expected there."""


class ObjectList(msgspec.Struct, Generic[Kind], frozen=True):
    """One page of a list; `metadata.continue_` leads to the next."""

    metadata: ListMeta
    items: tuple[Kind, ...] = ()


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR, and its object still as JSON."""

    type: str
    object: msgspec.Raw


def decode_object(kind: type[Kind], data: bytes | msgspec.Raw) -> Kind:
    try:
        decoded: Kind = _OBJECTS[kind].decode(data)
    except msgspec.MsgspecError as error:
        raise _refusal(kind.__name__, error) from error
    return decoded


def decode_list(kind: type[Kind], data: bytes) -> ObjectList[Kind]:
    try:
        decoded: ObjectList[Kind] = _LISTS[kind].decode(data)
    except msgspec.MsgspecError as error:
        raise _refusal(f"{kind.__name__}List", error) from error
    return decoded


def decode_watch_event(data: bytes) -> WatchEvent:
    try:
        return _EVENTS.decode(data)
    except msgspec.MsgspecError as error:
        raise _refusal("watch event", error) from error


# Decoders are built once: building one costs more than decoding a small object with it.
_EVENTS = msgspec.json.Decoder(WatchEvent)
_OBJECTS: dict[type, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind) for kind in (CapacityRequest, AvailableCapacity, UpcomingNode)
}
_LISTS: dict[type, msgspec.json.Decoder[Any]] = {
    CapacityRequest: msgspec.json.Decoder(ObjectList[CapacityRequest]),
    AvailableCapacity: msgspec.json.Decoder(ObjectList[AvailableCapacity]),
    UpcomingNode: msgspec.json.Decoder(ObjectList[UpcomingNode]),
}


def _refusal(what: str, error: msgspec.MsgspecError) -> DecodeError:
    return DecodeError(f"cannot read {what}: {error}")
