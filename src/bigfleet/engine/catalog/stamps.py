"""Stamps: for whom machines were acquired, by what of it matters: a binding to bound cells, an attribution to new ones.

A binding is (priority, both dollars, group), a pair is (fingerprint, group). `pair_head` leads to the Creating cells of
a pair; the fleet keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bigfleet.engine.batches import Stamp
from bigfleet.engine.kernels.columns import grown, room
from bigfleet.engine.kernels.jit import I4, inner, kernel
from bigfleet.engine.kernels.texts import TextTable


class StampTable:
    """Owns stamps, bindings and pairs."""

    def __init__(self, texts: TextTable) -> None:
        self.texts = texts
        self.stamps: list[Stamp] = []
        self._stamp_index: dict[Stamp, int] = {}
        self._stamp_seen: dict[int, tuple[Stamp, int]] = {}
        self.stamp_binding = np.zeros(16, np.int32)
        self.stamp_pair = np.zeros(16, np.int32)
        self._binding_index: dict[tuple[int, float, float, int], int] = {}
        self.binding_priority = np.zeros(16, np.int64)
        self.binding_interruption = np.zeros(16)
        self.binding_reclamation = np.zeros(16)
        self.binding_group = np.zeros(16, np.int32)
        # By fingerprint and group in one number: tuples would cost more than all else about a new profile.
        self._pair_index: dict[int, int] = {}
        self.pair_head = np.full(16, -1, np.int32)
        self.pair_fingerprint = np.zeros(16, np.int32)
        self.pair_group = np.zeros(16, np.int32)
        self.pair_table = np.full(64, -1, np.int32)
        self.intern_stamp(Stamp())

    def intern_stamp(self, stamp: Stamp) -> int:
        seen = self._stamp_seen.get(id(stamp))
        if seen is not None:
            return seen[1]
        number = self._find_stamp(stamp)
        if len(self._stamp_seen) > 2 * len(self.stamps) + 1024:
            self._stamp_seen.clear()
        self._stamp_seen[id(stamp)] = (stamp, number)
        return number

    def intern_stamps(self, stamps: Sequence[Stamp]) -> list[int]:
        """Numbers of many stamps; their texts and pairs are taken in together."""
        groups = np.array(self.texts.intern_all([stamp.group for stamp in stamps]), np.int64)
        fingerprints = np.array(self.texts.intern_all([stamp.fingerprint for stamp in stamps]), np.int64)
        self._intern_pairs((fingerprints << 32 | groups).tolist())
        return list(map(self.intern_stamp, stamps))

    def _find_stamp(self, stamp: Stamp) -> int:
        found = self._stamp_index.get(stamp)
        if found is not None:
            return found
        number = self._stamp_index[stamp] = len(self.stamps)
        self.stamps.append(stamp)
        size = room(len(self.stamp_binding), number + 1)
        self.stamp_binding = grown(self.stamp_binding, size)
        self.stamp_pair = grown(self.stamp_pair, size)
        group = self.texts.intern(stamp.group)
        key = (stamp.priority, _dollars(stamp.interruption_dollars), _dollars(stamp.reclamation_dollars), group)
        self.stamp_binding[number] = self._intern_binding(key)
        self.stamp_pair[number] = self.intern_pair(self.texts.intern(stamp.fingerprint), group)
        return number

    def _intern_binding(self, key: tuple[int, float, float, int]) -> int:
        found = self._binding_index.get(key)
        if found is not None:
            return found
        number = self._binding_index[key] = len(self._binding_index)
        size = room(len(self.binding_group), number + 1)
        self.binding_priority = grown(self.binding_priority, size)
        self.binding_interruption = grown(self.binding_interruption, size)
        self.binding_reclamation = grown(self.binding_reclamation, size)
        self.binding_group = grown(self.binding_group, size)
        self.binding_priority[number], self.binding_interruption[number] = key[0], key[1]
        self.binding_reclamation[number], self.binding_group[number] = key[2], key[3]
        return number

    def intern_pair(self, fingerprint: int, group: int) -> int:
        """The number of an attribution (fingerprint, group); kernels find it again with `find_pair`."""
        found = self._pair_index.get(fingerprint << 32 | group)
        return self._add_pairs([fingerprint << 32 | group]) if found is None else found

    def intern_pairs(self, fingerprints: Sequence[int]) -> list[int]:
        """Numbers of attributions to no group."""
        return self._intern_pairs((np.array(fingerprints, np.int64) << 32).tolist())

    def _intern_pairs(self, pairs: list[int]) -> list[int]:
        known = self._pair_index
        if new := [pair for pair in dict.fromkeys(pairs) if pair not in known]:
            self._add_pairs(new)
        return list(map(known.__getitem__, pairs))

    def _add_pairs(self, new: list[int]) -> int:
        """The number of the first of them."""
        first = len(self._pair_index)
        last = first + len(new)
        self._pair_index.update(zip(new, range(first, last), strict=True))
        size = room(len(self.pair_head), last)
        if size > len(self.pair_head):
            self.pair_head = grown(self.pair_head, size, -1)
            self.pair_fingerprint = grown(self.pair_fingerprint, size)
            self.pair_group = grown(self.pair_group, size)
        pairs = np.array(new, np.int64)
        self.pair_fingerprint[first:last], self.pair_group[first:last] = pairs >> 32, pairs & 0xFFFFFFFF
        begin = first
        if last * 2 > len(self.pair_table):
            table = len(self.pair_table)
            while last * 2 > table:
                table *= 2
            self.pair_table = np.full(table, -1, np.int32)
            begin = 0
        _index_pairs(self.pair_table, self.pair_fingerprint, self.pair_group, begin, last - 1)
        return first

    def pair_of(self, fingerprint: int, group: int) -> int:
        """The number of an attribution, or -1 if no stamp ever carried it."""
        return self._pair_index.get(fingerprint << 32 | group, -1)

    def validate(self) -> None:
        """Stamps lead to the bindings and pairs they stand for."""
        texts = self.texts.texts
        for number, stamp in enumerate(self.stamps):
            pair, binding = int(self.stamp_pair[number]), int(self.stamp_binding[number])
            told = (texts[int(self.pair_fingerprint[pair])], texts[int(self.pair_group[pair])])
            assert told == (stamp.fingerprint, stamp.group), f"stamp {number} is attributed to {told}"
            assert int(self.binding_priority[binding]) == stamp.priority, f"stamp {number} is bound otherwise"


@inner
def pair_hash(fingerprint: int, group: int) -> int:
    value = (int(fingerprint) * 668265263 + int(group) * 374761393 + 12345) & 0x7FFFFFFFFFFF
    return (value ^ (value >> 17)) & 0x7FFFFFFF


@kernel
def _index_pairs(table: I4, fingerprints: I4, groups: I4, first: int, last: int) -> None:
    """Makes the pairs `first` to `last` findable."""
    mask = len(table) - 1
    for pair in range(first, last + 1):
        at = pair_hash(fingerprints[pair], groups[pair]) & mask
        while table[at] >= 0:
            at = (at + 1) & mask
        table[at] = pair


@inner
def find_pair(table: I4, fingerprints: I4, groups: I4, fingerprint: int, group: int) -> int:
    """The number of an attribution, or -1 if no stamp ever carried it."""
    mask = len(table) - 1
    at = pair_hash(fingerprint, group) & mask
    while table[at] >= 0:
        pair = table[at]
        if fingerprints[pair] == fingerprint and groups[pair] == group:
            return pair
        at = (at + 1) & mask
    return -1


def _dollars(amount: float) -> float:
    return amount + 0.0 if amount > 0 else 0.0
