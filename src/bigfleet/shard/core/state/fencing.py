"""Tokens: which of this shard's calls is newer, and which coordinator is.

The epoch comes from the journal and grows with every start; the sequence is fresh for every attempt of every call.
"""

from __future__ import annotations

from bigfleet.shard.contract.events import Fence


class Fencing:
    """Issues fences and keeps the coordinator's high-water mark."""

    __slots__ = ("_sequence", "epoch", "shard", "term")

    def __init__(self, shard: str, epoch: int) -> None:
        self.shard = shard
        self.epoch = epoch
        self.term = 0
        self._sequence = 0

    def next(self) -> Fence:
        self._sequence += 1
        return Fence(self.shard, self.epoch, self._sequence)

    def accept_term(self, term: int) -> bool:
        """Whether a coordinator of that term may speak; a higher one raises the mark, a lower one changes nothing."""
        if term < self.term:
            return False
        self.term = term
        return True
