"""Who rests for how long after a failure: machines, kinds of purchase, and needs a cluster cannot bootstrap.

Delays double up to a cap. Jitter comes from a hash of the subject and the attempt: spread out like chance, yet the same
in every replay.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Generic, TypeVar

from bigfleet.engine.batches import Breaker, Shape

K = TypeVar("K")


def delay(base: int, cap: int, attempt: int, subject: str) -> int:
    """Nanoseconds to wait after the `attempt`-th failure: half fixed, half by hash."""
    full = min(cap, base << min(attempt - 1, 40))
    digest = blake2b(f"{subject}#{attempt}".encode(), digest_size=4).digest()
    return full // 2 + (full - full // 2) * int.from_bytes(digest, "big") // 2**32


@dataclass(slots=True)
class Rest:
    """Failures in a row, and the instant from which the next try is allowed."""

    failures: int = 0
    until: int = 0
    why: str = ""


class Rests(Generic[K]):
    """Subjects that failed. A success forgets the subject; so does having been quiet for long."""

    __slots__ = ("_base", "_cap", "_rests")

    def __init__(self, base: int, cap: int) -> None:
        self._base = base
        self._cap = cap
        self._rests: dict[K, Rest] = {}

    def __len__(self) -> int:
        return len(self._rests)

    def failed(self, subject: K, now: int, why: str = "") -> int:
        """Count a failure; returns when the subject may be tried again."""
        rest = self._rests.setdefault(subject, Rest())
        if now >= rest.until:
            # Failures while it already rests are of the same wave and must not double the delay again.
            rest.failures += 1
            rest.until = now + delay(self._base, self._cap, rest.failures, repr(subject))
        rest.why = why
        return rest.until

    def succeeded(self, subject: K) -> None:
        self._rests.pop(subject, None)

    def until(self, subject: K) -> int:
        rest = self._rests.get(subject)
        return 0 if rest is None else rest.until

    def why(self, subject: K, now: int) -> str:
        """Why it rests; empty when it does not."""
        rest = self._rests.get(subject)
        return (rest.why or "it failed") if rest is not None and now < rest.until else ""

    def resting(self, subject: K, now: int) -> bool:
        return bool(self._rests) and now < self.until(subject)

    def prune(self, now: int) -> None:
        """Forget subjects that have been allowed to try for longer than the longest delay."""
        for subject in [s for s, rest in self._rests.items() if now - rest.until > self._cap]:
            del self._rests[subject]

    def items(self) -> list[tuple[K, Rest]]:
        return list(self._rests.items())


Kind = tuple[str, str, str, int]


def kind_of(shape: Shape) -> Kind:
    """What a breaker is kept per: (provider, instance type, zone, capacity type)."""
    return (shape.provider, shape.instance_type, shape.zone, shape.capacity_type)


def breakers(rests: Rests[Kind], now: int) -> tuple[Breaker, ...]:
    """The pauses in force, in a fixed order."""
    if not rests:
        return ()
    return tuple(sorted((Breaker(*kind, rest.until) for kind, rest in rests.items() if now < rest.until), key=_order))


def _order(breaker: Breaker) -> Kind:
    return (breaker.provider, breaker.instance_type, breaker.zone, breaker.capacity_type)
