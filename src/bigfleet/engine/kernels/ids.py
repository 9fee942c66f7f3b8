"""Machine ids: a byte arena with a hash index, slots handed out and taken back, and the text order of ids.

A slot is a row of every machine column. An id's bytes are never overwritten while someone may read them: results of
earlier steps point into the arena, which is packed into another one when most of it belongs to forgotten ids. Order is
by UTF-8 bytes; a 7-byte key behind the prefix all ids share decides it without touching the arena in nearly every case.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.kernels.columns import grown, grown_rows, made, room
from bigfleet.engine.kernels.jit import I4, I8, I8R, U1, eight, inner, kernel
from bigfleet.engine.kernels.rows import copied_rows
from bigfleet.engine.kernels.view import View, view

# Places in `meta`.
USED, FREE, BYTES, SKIP, LIVE, GRAVES = 0, 1, 2, 3, 4, 5
_EMPTY, _GRAVE = -1, -2
# Bytes of an id that its key holds, behind those that all ids share; bits of a span that are the size; none at all.
_KEYED = 7
_SIZE_BITS = 24
_NO_SPAN = -1
_LONGEST = (1 << _SIZE_BITS) - 1


@view
class Ids(View):
    """Slot columns `span` (where in the arena and how long, below 0 without an id) and `key`; `table` has hashes beside
    slots; `free` is a stack of slots."""

    arena: U1
    span: I8R
    key: I8R
    table: I8
    free: I4
    meta: I8


class IdStore:
    """Owns the arrays; kernels below change them through the view `v`."""

    def __init__(self) -> None:
        self.v = made(Ids, 16)._replace(table=np.full(64, _EMPTY, np.int64))

    @property
    def capacity(self) -> int:
        return len(self.v.span)

    def reserve(self, records: int, id_bytes: int) -> None:
        """Makes room for so many new ids; call before `intern`."""
        v = self.v
        meta = v.meta.tolist()
        slots = meta[USED] - meta[FREE] + records
        if slots > len(v.span):
            slots = room(len(v.span), slots)
            v = v._replace(
                **grown_rows(v, slots),
                free=grown(v.free, slots, used=meta[FREE]),
            )
        if meta[BYTES] + id_bytes > len(v.arena):
            v = _packed(v, id_bytes)
            v = v._replace(arena=grown(v.arena, room(len(v.arena), int(v.meta[BYTES]) + id_bytes)))
        if (meta[LIVE] + meta[GRAVES] + records) * 4 > len(v.table) * 3:
            size = 64
            while size * 2 < (meta[LIVE] + records) * 4:
                size *= 2
            v = v._replace(table=np.full(size, _EMPTY, np.int64))
            rehash(v)
        self.v = v

    def align(self, arena: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
        """Shortens the common prefix to what the new ids share, so that keys stay comparable."""
        align(self.v, arena, offsets)

    def text(self, slot: int) -> str:
        return self.texts(np.array([slot], np.int32))[0]

    def texts(self, slots: NDArray[np.int32]) -> list[str]:
        """Ids of many slots."""
        arena = self.v.arena.data
        spans = self.v.span[slots]
        first = spans >> _SIZE_BITS
        last = first + (spans & _LONGEST)
        return [str(arena[a:b], "utf-8") for a, b in zip(first.tolist(), last.tolist(), strict=True)]

    def find(self, text: str) -> int:
        """The slot of an id, or -1."""
        data = np.frombuffer(text.encode(), np.uint8) if text else np.zeros(0, np.uint8)
        return find_text(self.v, np.ascontiguousarray(data))


def _packed(v: Ids, id_bytes: int) -> Ids:
    """The ids without the bytes of forgotten ones, if those are most; earlier results go on reading the old columns."""
    spans = v.span[: int(v.meta[USED])]
    alive = int((spans[spans >= 0] & _LONGEST).sum())
    if 2 * alive > int(v.meta[BYTES]):
        return v
    packed = v._replace(arena=np.zeros(2 * alive + id_bytes, np.uint8), **copied_rows(v))
    pack(v, packed)
    return packed


@kernel
def pack(old: Ids, new: Ids) -> None:
    """Copies the bytes of live ids, one behind the other."""
    at = 0
    for slot in range(old.meta[USED]):
        if old.span[slot] >= 0:
            size = id_size(old, slot)
            for i in range(size):
                new.arena[at + i] = old.arena[id_start(old, slot) + i]
            new.span[slot] = _span(at, size)
            at += size
    new.meta[BYTES] = at


@inner
def id_start(ids: Ids, slot: int) -> int:
    """Where in the arena a slot's id begins."""
    return ids.span[slot] >> _SIZE_BITS


@inner
def id_size(ids: Ids, slot: int) -> int:
    return ids.span[slot] & _LONGEST


@inner
def _span(start: int, size: int) -> int:
    return (int(start) << _SIZE_BITS) | int(size)


@inner
def hash_bytes(arena: U1, start: int, size: int) -> int:
    """Eight bytes at a time, the last eight once more if need be. Stays below 2**63, where plain Python has no end."""
    value = 5381
    if size < 8:
        for i in range(start, start + size):
            value = _stirred(value ^ int(arena[i]))
        return value
    at = start
    while at < start + size:
        word = eight(arena, min(at, start + size - 8))
        value = _stirred(value ^ (word & 0x7FFFFFFF))
        value = _stirred(value ^ ((word >> 31) & 0x1FFFFFFFF))
        at += 8
    return value


@inner
def _stirred(value: int) -> int:
    """A number below 2**31 that every bit of one below 2**33 has a say in."""
    value = value * 668265263
    return (value ^ (value >> 31)) & 0x7FFFFFFF


@inner
def prefix_key(arena: U1, start: int, size: int, skip: int) -> int:
    value = 0
    for i in range(skip, skip + _KEYED):
        value = value << 8
        if i < size:
            value |= int(arena[start + i])
    return value


@inner
def bytes_less(arena: U1, a: int, a_size: int, b: int, b_size: int) -> bool:
    size = min(a_size, b_size)
    # Texts begin alike: what is equal is passed over eight bytes at a time.
    same = 0
    while same + 8 <= size and eight(arena, a + same) == eight(arena, b + same):
        same += 8
    for i in range(same, size):
        x = arena[a + i]
        y = arena[b + i]
        if x != y:
            return bool(x < y)
    return bool(a_size < b_size)


@inner
def id_less(ids: Ids, a: int, b: int) -> bool:
    """Text order of two slots' ids."""
    x = ids.key[a]
    y = ids.key[b]
    if x != y:
        return bool(x < y)
    if a == b:
        return False
    return bytes_less(ids.arena, id_start(ids, a), id_size(ids, a), id_start(ids, b), id_size(ids, b))


@inner
def _in_table(home: int, slot: int) -> int:
    """What stands in the table for a slot: its hash, so that others are passed over unseen, and its number."""
    return (int(home) << 32) | int(slot)


@inner
def likely_slot(ids: Ids, home: int) -> int:
    """The first slot whose id has this hash, or -1. Looks at nothing but the table."""
    mask = len(ids.table) - 1
    at = home & mask
    while ids.table[at] != _EMPTY:
        if ids.table[at] >> 32 == home:
            return ids.table[at] & 0xFFFFFFFF
        at = (at + 1) & mask
    return -1


@inner
def _same_id(ids: Ids, slot: int, key: int, arena: U1, start: int, size: int) -> bool:
    """Whether a slot's id is this one, whose key is known: that of another is nearly always another."""
    if ids.key[slot] != key or id_size(ids, slot) != size:
        return False
    base = id_start(ids, slot)
    same = 0
    while same + 8 <= size and eight(ids.arena, base + same) == eight(arena, start + same):
        same += 8
    for i in range(same, size):
        if ids.arena[base + i] != arena[start + i]:
            return False
    return True


@inner
def find_id(ids: Ids, arena: U1, start: int, size: int) -> int:
    mask = len(ids.table) - 1
    key = prefix_key(arena, start, size, ids.meta[SKIP])
    home = hash_bytes(arena, start, size)
    at = home & mask
    while ids.table[at] != _EMPTY:
        if ids.table[at] >> 32 == home:
            slot = ids.table[at] & 0xFFFFFFFF
            if _same_id(ids, slot, key, arena, start, size):
                return slot
        at = (at + 1) & mask
    return -1


@inner
def is_keyed(ids: Ids, size: int) -> bool:
    """Whether ids of this size differ in their keys, if they begin as all others do: nobody need look at the bytes."""
    return size <= ids.meta[SKIP] + _KEYED


@inner
def intern_id(ids: Ids, arena: U1, start: int, size: int, home: int, key: int) -> int:
    """The slot of an id, made if it is new; room must have been reserved and ids aligned. `home` is its hash, `key` its
    `prefix_key`."""
    mask = len(ids.table) - 1
    at = home & mask
    keyed = is_keyed(ids, size)
    grave = -1
    while ids.table[at] != _EMPTY:
        if ids.table[at] >> 32 == home:
            slot = ids.table[at] & 0xFFFFFFFF
            if ids.key[slot] == key and id_size(ids, slot) == size:
                if keyed or _same_id(ids, slot, key, arena, start, size):
                    return slot
        elif ids.table[at] == _GRAVE and grave < 0:
            grave = at
        at = (at + 1) & mask
    if grave >= 0:
        at = grave
        ids.meta[GRAVES] -= 1
    if ids.meta[FREE] > 0:
        ids.meta[FREE] -= 1
        slot = ids.free[ids.meta[FREE]]
    else:
        slot = ids.meta[USED]
        ids.meta[USED] += 1
    base = ids.meta[BYTES]
    for i in range(size):
        ids.arena[base + i] = arena[start + i]
    ids.meta[BYTES] += size
    ids.span[slot] = _span(base, size)
    ids.key[slot] = key
    ids.table[at] = _in_table(home, slot)
    ids.meta[LIVE] += 1
    return slot


@inner
def forget_id(ids: Ids, slot: int) -> None:
    """Takes a slot back; its bytes stay for readers of earlier results."""
    mask = len(ids.table) - 1
    home = hash_bytes(ids.arena, id_start(ids, slot), id_size(ids, slot))
    at = home & mask
    while ids.table[at] != _in_table(home, slot):
        at = (at + 1) & mask
    ids.table[at] = _GRAVE
    ids.meta[GRAVES] += 1
    ids.meta[LIVE] -= 1
    ids.free[ids.meta[FREE]] = slot
    ids.meta[FREE] += 1
    ids.span[slot] = _NO_SPAN


@kernel
def find_text(ids: Ids, text: U1) -> int:
    return find_id(ids, text, 0, len(text))


@kernel
def rehash(ids: Ids) -> None:
    """Fills an empty table with the live slots."""
    mask = len(ids.table) - 1
    for i in range(ids.meta[FREE]):
        ids.span[ids.free[i]] = _NO_SPAN
    for slot in range(ids.meta[USED]):
        if ids.span[slot] < 0:
            continue
        home = hash_bytes(ids.arena, id_start(ids, slot), id_size(ids, slot))
        at = home & mask
        while ids.table[at] != _EMPTY:
            at = (at + 1) & mask
        ids.table[at] = _in_table(home, slot)
    ids.meta[GRAVES] = 0


@kernel
def align(ids: Ids, arena: U1, offsets: I8) -> None:
    align_ids(ids, arena, offsets, 0, len(offsets) - 1)


@inner
def align_ids(ids: Ids, arena: U1, offsets: I8, first: int, last: int) -> None:
    """Shortens the common prefix to what the ids `first .. last` share with the known ones."""
    one = first
    while one < last and offsets[one] == offsets[one + 1]:
        one += 1
    if one == last:
        return
    if ids.meta[LIVE] == 0:
        ids.meta[SKIP] = offsets[one + 1] - offsets[one]
        reference = arena
        base = offsets[one]
    else:
        slot = 0
        while ids.span[slot] < 0:
            slot += 1
        reference = ids.arena
        base = id_start(ids, slot)
    skip = ids.meta[SKIP]
    for i in range(one, last):
        start = offsets[i]
        size = offsets[i + 1] - start
        if size == 0:
            continue
        if size < skip:
            skip = size
        for b in range(skip):
            if arena[start + b] != reference[base + b]:
                skip = b
                break
    if skip < ids.meta[SKIP]:
        ids.meta[SKIP] = skip
        for slot in range(ids.meta[USED]):
            if ids.span[slot] >= 0:
                ids.key[slot] = prefix_key(ids.arena, id_start(ids, slot), id_size(ids, slot), skip)
