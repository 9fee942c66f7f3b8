"""Fencing marks: the highest (epoch, sequence) accepted per (shard, machine).

A token must be strictly newer than its mark. Marks exist before machines do: a token for an id nobody knows still
counts, so a stale caller cannot learn whether a machine exists. Marks on unknown ids protect nothing, so only the
latest of them are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from bigfleet.provider.kit.core.events import ForgetFence, SaveFence
from bigfleet.provider.kit.core.records import Token

UNKNOWN_MARKS_KEPT = 10_000


class FenceMarks:
    """All marks of one provider. `known` says whether an id names a machine, listed or lost."""

    def __init__(self, known: Callable[[str], bool], marks: Iterable[SaveFence] = ()) -> None:
        self._known = known
        self._marks = {(mark.shard_id, mark.machine_id): (mark.epoch, mark.sequence) for mark in marks}
        self._unknown: OrderedDict[tuple[str, str], None] = OrderedDict(
            (key, None) for key in self._marks if not known(key[1])
        )

    def __len__(self) -> int:
        return len(self._marks)

    def mark(self, shard_id: str, machine_id: str) -> tuple[int, int] | None:
        return self._marks.get((shard_id, machine_id))

    def admits(self, token: Token, machine_id: str) -> bool:
        mark = self._marks.get((token.shard_id, machine_id))
        return token.absent or mark is None or (token.epoch, token.sequence) > mark

    def advance(self, token: Token, machine_id: str) -> list[SaveFence | ForgetFence]:
        """Record an admitted token and say what to save."""
        if token.absent:
            return []
        key = (token.shard_id, machine_id)
        self._marks[key] = (token.epoch, token.sequence)
        rows: list[SaveFence | ForgetFence] = [SaveFence(token.shard_id, machine_id, token.epoch, token.sequence)]
        if not self._known(machine_id):
            self._unknown[key] = None
            self._unknown.move_to_end(key)
            rows += self._forget_oldest_unknown()
        return rows

    def _forget_oldest_unknown(self) -> list[ForgetFence]:
        forgotten = []
        while len(self._unknown) > UNKNOWN_MARKS_KEPT:
            oldest, _ = self._unknown.popitem(last=False)
            if not self._known(oldest[1]):
                del self._marks[oldest]
                forgotten.append(ForgetFence(*oldest))
        return forgotten
