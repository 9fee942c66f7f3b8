"""Roll-ups from the wire to engine columns: read as bytes first, so an unchanged one costs a hash and not a parse.

A roll-up is valid as a whole or refused as a whole, with one sentence that names the field, or the limit it is over
(`contract/limits.py`). Profiles and quantities are interned over all roll-ups of the process, within a bound in bytes.
Knows nothing of sessions; may run in a worker thread.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from google.protobuf.message import DecodeError

from bigfleet.engine.batches import NONE, Rollup
from bigfleet.model.profile import Profile, ProfileError
from bigfleet.model.quantity import QuantityError, to_units
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import ResourceError, Resources
from bigfleet.model.spread import Spread, WhenUnsatisfiable
from bigfleet.model.taint import Toleration
from bigfleet.shard.contract import limits
from bigfleet.shard.streams.counted_rows import (
    COUNT_TAGS,
    EXTENSION,
    NO_UNITS,
    MixedRowsError,
    Units,
    counted_of,
    mirror_version_at,
    units_of,
    units_told,
)
from bigfleet.shard.streams.remembered import Remembered
from bigfleet.wire import capacity_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ROLLUP_TAG = 2 << 3 | 2
_CLUSTER_TAG = 1 << 3 | 2
_TIMESTAMP_TAG = 2 << 3
_OPERATORS = {int(operator): operator for operator in Operator}
_WHENS = {int(when): when for when in WhenUnsatisfiable}
_NEEDS_TAG = 3 << 3 | 2
_AGGREGATE_TAG = 2 << 3 | 2
_MIN_UNIT_TAG = 8 << 3 | 2
_AMOUNT_TAGS = (_AGGREGATE_TAG, _MIN_UNIT_TAG)
# What is remembered of rows (most of a changed roll-up are those of the last one), constraint sets and amounts.
_ROW_BYTES = 128 << 20
_CONSTRAINT_BYTES = 128 << 20
_AMOUNT_BYTES = 32 << 20
_LONGEST_ROW = 512


class RollupError(ValueError):
    """A roll-up that is refused as a whole; the message names the field, its value and what is accepted."""


# Profile, group, resource names in order, by these names aggregate and min_unit, and what the row says in units.
_Row = tuple[Profile, str, tuple[str, ...], tuple[int, ...], tuple[int, ...], Units]


class _Unusual(Exception):  # noqa: N818 - control flow inside this module
    """Bytes that are not laid out as serialisers do it."""


@dataclass(frozen=True, slots=True)
class RawRollup:
    """A serialised ClusterCapacityNeeds; `digest` ignores timestamp and mirror version where serialisers put them."""

    body: bytes
    timestamp: int
    digest: bytes
    mirror_version: int = 0


def looks_like_rollup(frame: bytes) -> bool:
    """Whether a serialised OperatorMessage begins with a roll-up; tells cheaply what may be large."""
    return frame[:1] == bytes((_ROLLUP_TAG,))


def raw_rollup(frame: bytes) -> RawRollup | None:
    """The roll-up inside a serialised OperatorMessage that holds nothing else; None for every other frame."""
    if not frame or frame[0] != _ROLLUP_TAG:
        return None
    length, at = _varint(frame, 1)
    if at < 0 or at + length != len(frame):
        return None
    return raw_body(frame[at:])


def raw_body(body: bytes) -> RawRollup:
    """`raw_rollup` for a message that was taken out of its envelope already."""
    at = 0
    if body[:1] == bytes((_CLUSTER_TAG,)):
        length, start = _varint(body, 1)
        at = start + length if 0 <= start <= len(body) - length else -1
    if at < 0 or at >= len(body) or body[at] != _TIMESTAMP_TAG:
        # Not how serialisers write it: compare all of it, which can only make an equal roll-up look changed.
        return RawRollup(body, 0, _digest(body, b""))
    timestamp, end = _varint(body, at + 1)
    if end < 0:
        return RawRollup(body, 0, _digest(body, b""))
    if timestamp >= 1 << 63:
        timestamp -= 1 << 64
    last, version = mirror_version_at(body, end)
    return RawRollup(body, timestamp, _digest(body[:at], body[end:last]), version)


class RollupDecoder:
    """Turns serialised roll-ups into columns; remembers rows, constraint sets and amounts it has seen.

    Rows are walked as bytes: what repeats (a row; in it a constraint set, an amount) is looked up by its own bytes and
    only parsed when it is new. A roll-up that is laid out in another way than serialisers do is parsed as a whole.
    """

    def __init__(self) -> None:
        self._rows: Remembered[_Row] = Remembered(_ROW_BYTES)
        self._constraints: Remembered[tuple[Profile, str]] = Remembered(_CONSTRAINT_BYTES)
        self._amounts: Remembered[tuple[str, int]] = Remembered(_AMOUNT_BYTES)

    @property
    def remembered_bytes(self) -> int:
        """What the memory of earlier roll-ups is charged with."""
        return self._rows.held_bytes + self._constraints.held_bytes + self._amounts.held_bytes

    def decode(self, body: bytes, *, placement: bool = False) -> tuple[Rollup, int]:
        """The columns and the timestamp; raises RollupError. Without `placement` rows are sums whatever they count."""
        try:
            try:
                return self._walked(body, placement)
            except (_Unusual, IndexError, DecodeError):
                return self.parsed(body, placement=placement)
        except MemoryError:
            # Refused like any other roll-up that is too much: the clusters served so far must not pay for it.
            raise RollupError(f"rollup of {len(body)} bytes needs more memory than this shard has") from None

    def parsed(self, body: bytes, *, placement: bool = False) -> tuple[Rollup, int]:
        """The same by parsing the whole message."""
        try:
            message = capacity_pb2.ClusterCapacityNeeds.FromString(body)
        except DecodeError as error:
            raise RollupError(f"rollup of {len(body)} bytes does not parse: {error}") from None
        rows = []
        _limit("needs has rows", len(message.needs), limits.ROWS)
        for number, need in enumerate(message.needs):
            aggregate = dict(_units(number, "aggregate_resources", need.aggregate_resources))
            min_unit = dict(_units(number, "min_unit", need.min_unit))
            group = _text(f"needs[{number}].group", need.group, limits.GROUP_BYTES)
            rows.append(_row(profile_of(number, need), group, aggregate, min_unit, units_of(need)))
        return _rollup(rows, message, placement), message.timestamp_unix_nanos

    def _walked(self, body: bytes, placement: bool) -> tuple[Rollup, int]:
        rows: list[_Row] = []
        rest: list[bytes] = []
        known = self._rows
        at = begun = 0
        end = len(body)
        while at < end:
            if body[at] != _NEEDS_TAG:
                at = _after(body, at)
                continue
            if at > begun:
                rest.append(body[begun:at])
            length, start = _short_varint(body, at + 1)
            at = begun = start + length
            if at > end:
                raise _Unusual
            row = body[start:at]
            if len(rows) == limits.ROWS:
                raise RollupError(f"needs has more than {limits.ROWS} rows; at most {limits.ROWS} are accepted")
            rows.append(known.get(row) or self._row(len(rows), row))
        rest.append(body[begun:end])
        # What is left is a roll-up without needs: cluster, timestamp, overhead, mirror version.
        message = capacity_pb2.ClusterCapacityNeeds.FromString(b"".join(rest))
        return _rollup(rows, message, placement), message.timestamp_unix_nanos

    def _row(self, number: int, row: bytes) -> _Row:
        aggregate: dict[str, int] = {}
        min_unit: dict[str, int] = {}
        kept: list[bytes] = []
        told: list[bytes] = []
        at = begun = 0
        end = len(row)
        while at < end:
            tag = row[at]
            if tag in _AMOUNT_TAGS:
                if at > begun:
                    kept.append(row[begun:at])
                length, start = row[at + 1], at + 2
                if length > 0x7F:
                    length, start = _short_varint(row, at + 1)
                at = begun = start + length
                if at > end:
                    raise _Unusual
                known = self._amounts.get(row[start:at])
                if known is None:
                    known = self._amount(number, tag, row[start:at])
                if tag == _AGGREGATE_TAG:
                    aggregate[known[0]] = known[1]
                else:
                    min_unit[known[0]] = known[1]
                if len(aggregate) + len(min_unit) > 2 * limits.RESOURCES:
                    # Before the rest is read: this is what a roll-up meant to do harm consists of.
                    raise _too_many_names(number, max(len(aggregate), len(min_unit)))
            elif tag in COUNT_TAGS and row[at + 1] == EXTENSION:
                # What changes with every pod is no part of the constraint set.
                if at > begun:
                    kept.append(row[begun:at])
                start, at = at, _after(row, at)
                begun = at
                told.append(row[start:at])
            else:
                at = _after(row, at)
        if at != end:
            raise _Unusual
        kept.append(row[begun:end])
        key = b"".join(kept)
        constraint = self._constraints.get(key)
        if constraint is None:
            constraint = self._constraint(number, key)
        made = _row(*constraint, aggregate, min_unit, units_told(b"".join(told)) if told else NO_UNITS)
        if end <= _LONGEST_ROW:
            self._rows.keep(row, made)
        return made

    def _amount(self, number: int, tag: int, entry: bytes) -> tuple[str, int]:
        if len(entry) > 0x7F:
            raise _Unusual
        need = capacity_pb2.CapacityNeed.FromString(bytes((tag, len(entry))) + entry)
        aggregate = tag == _AGGREGATE_TAG
        field = "aggregate_resources" if aggregate else "min_unit"
        found = _units(number, field, need.aggregate_resources if aggregate else need.min_unit)
        if len(found) != 1:
            raise _Unusual
        self._amounts.keep(entry, found[0])
        return found[0]

    def _constraint(self, number: int, key: bytes) -> tuple[Profile, str]:
        need = capacity_pb2.CapacityNeed.FromString(key)
        made = (profile_of(number, need), _text(f"needs[{number}].group", need.group, limits.GROUP_BYTES))
        self._constraints.keep(key, made)
        return made


def _row(profile: Profile, group: str, aggregate: dict[str, int], min_unit: dict[str, int], units: Units) -> _Row:
    names = tuple(sorted(aggregate.keys() | min_unit.keys()))
    return (
        profile,
        group,
        names,
        tuple(aggregate.get(name, 0) for name in names),
        tuple(min_unit.get(name, 0) for name in names),
        units,
    )


def _rollup(rows: list[_Row], message: capacity_pb2.ClusterCapacityNeeds, placement: bool) -> Rollup:
    """Rows as columns; the message is asked for everything else."""
    counted = None
    if placement:
        try:
            counted = counted_of([row[5] for row in rows], message.mirror_version)
        except MixedRowsError as error:
            raise RollupError(str(error)) from None
    profiles: dict[str, int] = {}
    found: list[Profile] = []
    groups: dict[str, int] = {}
    profile_column, group_column = [], []
    for profile, group, *_ in rows:
        number = profiles.setdefault(profile.fingerprint, len(found))
        if number == len(found):
            found.append(profile)
        profile_column.append(number)
        group_column.append(groups.setdefault(group, len(groups)) if group else NONE)
    names = tuple(sorted({name for row in {row[2] for row in rows} for name in row}))
    _limit("needs name resources", len(names), limits.RESOURCES)
    _limit("rows times resource names are", len(rows) * len(names), limits.AMOUNTS)
    return Rollup(
        cluster=message.cluster_id,
        profiles=tuple(found),
        groups=tuple(groups),
        resources=names,
        profile=np.array(profile_column, np.int32),
        group=np.array(group_column, np.int32),
        aggregate=_matrix([(row[2], row[3]) for row in rows], names),
        min_unit=_matrix([(row[2], row[4]) for row in rows], names),
        overhead=_overhead(message.node_overhead),
        counted=counted,
    )


def profile_of(row: int, need: capacity_pb2.CapacityNeed) -> Profile:
    where = f"needs[{row}]"
    _limit(f"{where}.requirements are", len(need.requirements), limits.REQUIREMENTS)
    _limit(f"{where}.requirements have values", sum(len(e.values) for e in need.requirements), limits.VALUES)
    _limit(f"{where}.spread has", len(need.spread), limits.SPREADS)
    _limit(f"{where}.tolerations are", len(need.tolerations), limits.TOLERATIONS)
    if need.ByteSize() > limits.TEXT_BYTES:
        for text in _texts(need):
            _text(f"{where}: a key or value", text, limits.TEXT_BYTES)
    requirements = []
    for index, entry in enumerate(need.requirements):
        operator = _OPERATORS.get(entry.operator)
        if operator is None:
            raise RollupError(
                f"needs[{row}].requirements[{index}].operator is {entry.operator}; 0 to {max(_OPERATORS)} are accepted"
            )
        requirements.append(Requirement(entry.key, operator, tuple(entry.values)))
    spread = [
        # Contract: an unknown value is read as unspecified, it does not refuse the roll-up.
        Spread(entry.topology_key, entry.max_skew, _WHENS.get(entry.when_unsatisfiable, WhenUnsatisfiable.UNSPECIFIED))
        for entry in need.spread
    ]
    tolerations = [Toleration(entry.key, entry.operator, entry.value, entry.effect) for entry in need.tolerations]
    try:
        return Profile(
            requirements,
            spread,
            need.priority,
            need.interruption_penalty_bucket,
            need.reclamation_penalty_bucket,
            tolerations,
            need.interruption_microdollars,
        )
    except ProfileError as error:
        raise RollupError(f"needs[{row}]: {error}") from None


def _units(row: int, field: str, quantities: Mapping[str, str]) -> list[tuple[str, int]]:
    units: list[tuple[str, int]] = []
    if len(quantities) > limits.RESOURCES:
        raise _too_many_names(row, len(quantities))
    for name, text in quantities.items():
        _text(f"needs[{row}].{field}: a name or quantity", max(name, text, key=len), limits.TEXT_BYTES)
        try:
            amount = to_units(name, text, round_up=True)
            Resources({name: amount or 1})
        except (QuantityError, ResourceError) as error:
            raise RollupError(f"needs[{row}].{field}: {error}") from None
        units.append((name, amount))
    return units


def _overhead(quantities: Mapping[str, str]) -> Resources:
    if not quantities:
        return Resources.ZERO
    _limit("node_overhead names resources", len(quantities), limits.RESOURCES)
    try:
        return Resources.parse(quantities, round_up=True)
    except (QuantityError, ResourceError) as error:
        raise RollupError(f"node_overhead: {error}") from None


def _texts(need: capacity_pb2.CapacityNeed) -> Iterator[str]:
    for requirement in need.requirements:
        yield requirement.key
        yield from requirement.values
    for spread in need.spread:
        yield spread.topology_key
    for toleration in need.tolerations:
        yield from (toleration.key, toleration.value, toleration.operator, toleration.effect)


def _text(what: str, text: str, limit: int) -> str:
    # Characters first: nearly every text is short, and bytes are at least as many.
    if len(text) > limit // 4 and len(text.encode()) > limit:
        raise RollupError(f"{what} has {len(text.encode())} bytes; at most {limit} are accepted")
    return text


def _limit(what: str, found: int, limit: int) -> None:
    if found > limit:
        raise RollupError(limits.over(what, found, limit))


def _too_many_names(row: int, found: int) -> RollupError:
    return RollupError(limits.over(f"needs[{row}] names resources: more than", found - 1, limits.RESOURCES))


def _matrix(
    vectors: list[tuple[tuple[str, ...], tuple[int, ...]]], names: tuple[str, ...]
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Amounts by row and name; rows that speak of the same names, which is the rule, are taken as they are."""
    amounts = [
        values if mine == names else [dict(zip(mine, values, strict=True)).get(name, 0) for name in names]
        for mine, values in vectors
    ]
    return np.array(amounts, np.int64).reshape(len(vectors), len(names))


def _digest(head: bytes, tail: bytes) -> bytes:
    digest = hashlib.blake2b(head, digest_size=16)
    digest.update(b"\x00")
    digest.update(tail)
    return digest.digest()


def _short_varint(data: bytes, at: int) -> tuple[int, int]:
    """A length of at most four bytes, and the offset after it."""
    number = data[at]
    at += 1
    if number < 0x80:
        return number, at
    number &= 0x7F
    for shift in (7, 14, 21):
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise _Unusual


def _after(data: bytes, at: int) -> int:
    """The offset after the field that begins here."""
    key = data[at]
    while data[at] > 0x7F:
        at += 1
    at += 1
    kind = key & 7
    if kind == 0:
        while data[at] > 0x7F:
            at += 1
        return at + 1
    if kind == 2:
        if data[at] < 0x80:
            return at + 1 + data[at]
        length, at = _short_varint(data, at)
        return at + length
    raise _Unusual


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(number, offset after it); offset -1 when there is none."""
    result = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & (2**64 - 1), at
        shift += 7
    return 0, -1
