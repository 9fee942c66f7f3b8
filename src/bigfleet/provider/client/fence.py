"""The shard's fencing tokens: one epoch per process, a fresh sequence number for every attempt, retries included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class FencingToken:
    """What a provider compares to refuse a zombie. The all-zero token bypasses fencing and is for test harnesses."""

    shard_id: str = ""
    epoch: int = 0
    sequence: int = 0


class TokenSource(Protocol):
    """Anything that can stamp the next attempt."""

    def next(self) -> FencingToken: ...


class Fence:
    """Tokens of one shard process: the epoch is read and raised at start, the sequence counts from 1."""

    def __init__(self, shard_id: str, epoch: int) -> None:
        if not shard_id:
            raise ValueError("shard_id is empty; give the shard's stable name")
        if epoch < 1:
            raise ValueError(f"epoch is {epoch}; give 1 or more, raised at every start of the process")
        self._shard_id = shard_id
        self._epoch = epoch
        self._sequence = 0

    def next(self) -> FencingToken:
        self._sequence += 1
        return FencingToken(self._shard_id, self._epoch, self._sequence)


class Unfenced:
    """Sends the all-zero token. Only for tools and tests: a real shard must fence."""

    def next(self) -> FencingToken:
        return FencingToken()


class GivenFences:
    """Has no token: every call must bring its own, and one that forgot it never reaches a provider."""

    def next(self) -> FencingToken:
        raise ValueError("the call brings no fence; give the token of this attempt")
