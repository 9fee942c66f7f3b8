"""Texts: numbers for fingerprints, groups, names and values, and their bytes for comparisons inside kernels.

Order is by UTF-8 bytes; a 7-byte key decides it without touching the arena in nearly every case.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, islice

import numpy as np

from bigfleet.engine.kernels.columns import grown, room
from bigfleet.engine.kernels.ids import bytes_less
from bigfleet.engine.kernels.jit import I4, I8, U1, inner
from bigfleet.engine.kernels.view import View, view

# So many bytes of a text are its key, as one number.
_KEYED = 7
_WEIGHTS = 256 ** np.arange(_KEYED - 1, -1, -1, dtype=np.int64)


@view
class Texts(View):
    """Bytes of every interned text, for comparisons inside kernels."""

    arena: U1
    off: I8
    len: I4
    key: I8


class TextTable:
    """Text to number and back; number 0 is the empty text."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}
        self.texts: list[str] = []
        self.v = Texts(np.zeros(64, np.uint8), np.zeros(16, np.int64), np.zeros(16, np.int32), np.zeros(16, np.int64))
        self._bytes = 0
        self.intern("")

    def intern(self, text: str) -> int:
        found = self.index.get(text)
        return self._add(text) if found is None else found

    def intern_all(self, texts: Sequence[str]) -> list[int]:
        """Numbers of many texts; new ones get theirs in the order given, and cost little each."""
        index, before = self.index, len(self.index)
        found = list(map(index.setdefault, texts, count(before)))
        if len(index) == before:
            return found
        new = list(texts)
        if len(index) < before + len(new):
            # Some were known, or were met twice: the new ones are numbered without gaps.
            new = list(islice(reversed(index), len(index) - before))[::-1]
            index.update(zip(new, range(before, len(index)), strict=True))
            found = list(map(index.__getitem__, texts))
        try:
            self._add_all(new)
        except UnicodeEncodeError:
            for text in new:
                del index[text]
            raise
        return found

    def _add(self, text: str) -> int:
        number, data = len(self.texts), text.encode()
        end = self._bytes + len(data)
        v = self._fitting(number + 1, end)
        v.arena[self._bytes : end] = np.frombuffer(data, np.uint8)
        v.off[number] = self._bytes
        v.len[number] = len(data)
        v.key[number] = _key(data)
        self._bytes = end
        self.texts.append(text)
        self.index[text] = number
        return number

    def _add_all(self, new: list[str]) -> None:
        """Keeps texts that are in the index already."""
        first, last = len(self.texts), len(self.texts) + len(new)
        # Nearly all texts are ASCII, and then the bytes of all of them are made at once.
        whole = "".join(new)
        sizes = map(len, new) if whole.isascii() else (len(text.encode()) for text in new)
        lengths = np.fromiter(sizes, np.int64, len(new))
        end = self._bytes + int(lengths.sum())
        v = self._fitting(last, end)
        v.arena[self._bytes : end] = np.frombuffer(whole.encode(), np.uint8)
        begins = self._bytes + np.cumsum(lengths) - lengths
        v.off[first:last] = begins
        v.len[first:last] = lengths
        keys = v.key[first:last]
        keys[:] = 0
        for place in range(_KEYED):
            byte = v.arena[np.minimum(begins + place, end - 1)]
            keys += np.where(lengths > place, byte, 0) * _WEIGHTS[place]
        self._bytes = end
        self.texts += new

    def _fitting(self, texts: int, end: int) -> Texts:
        """The columns with room for so many texts and bytes; the same view as long as there is."""
        v = self.v
        if texts > len(v.off) or end > len(v.arena):
            size = room(len(v.off), texts)
            v = self.v = v._replace(
                arena=grown(v.arena, room(len(v.arena), end)),
                off=grown(v.off, size), len=grown(v.len, size), key=grown(v.key, size),
            )  # fmt: skip
        return v


def _key(data: bytes) -> int:
    return int.from_bytes(data[:_KEYED].ljust(_KEYED, b"\0"), "big")


@inner
def text_less(texts: Texts, a: int, b: int) -> bool:
    x = texts.key[a]
    y = texts.key[b]
    if x != y:
        return bool(x < y)
    if a == b:
        return False
    return bytes_less(texts.arena, texts.off[a], texts.len[a], texts.off[b], texts.len[b])
