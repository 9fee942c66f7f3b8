"""Ids the shard makes up: 16 hexadecimal digits, unlike any other of this shard's life, the same in every replay."""

from __future__ import annotations

from hashlib import blake2b


class IdSource:
    """Request and instruction ids."""

    __slots__ = ("_count", "_prefix")

    def __init__(self, shard: str, epoch: int) -> None:
        self._prefix = f"{shard}/{epoch}/"
        self._count = 0

    def next(self) -> str:
        self._count += 1
        return blake2b(f"{self._prefix}{self._count}".encode(), digest_size=8).hexdigest()
