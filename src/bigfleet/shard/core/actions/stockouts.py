"""What a provider means that refuses purchases: one kind is sold out, it wants fewer calls, or it is away.

A provider that says which is believed. One that only refuses is understood by the pattern: three refusals of one kind
on two machines within a minute, no purchase of the kind in between, while other calls of that provider are answered,
are a stock-out. Refusals of two kinds at once are a limit on calls. Judges; the executor acts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from bigfleet.engine.batches import Shape
from bigfleet.engine.policy import MINUTE
from bigfleet.shard.core.state.backoff import Kind, kind_of

WITHIN = MINUTE
REFUSALS = 3
MACHINES = 2


class Meaning(Enum):
    """How refused purchases are to be understood."""

    UNCLEAR = auto()
    PROBE = auto()
    """It looks like a stock-out; another call must be answered before it counts as one."""
    SOLD_OUT = auto()
    THROTTLED = auto()


@dataclass(frozen=True, slots=True)
class Refused:
    """One refused purchase."""

    at: int
    kind: Kind
    machine: str


class StockOuts:
    """Refused purchases of the last minute, and kinds found to be sold out."""

    def __init__(self) -> None:
        self._refused: dict[str, list[Refused]] = {}
        self._worked: dict[str, int] = {}
        # A machine of every kind that was found sold out: what is told of the kind follows from its shape.
        self._sold_out: dict[Kind, Shape] = {}

    def refused(self, shape: Shape, machine: str, now: int) -> Meaning:
        """A purchase was refused without a reason."""
        kind = kind_of(shape)
        recent = [each for each in self._refused.get(shape.provider, ()) if now - each.at <= WITHIN]
        recent.append(Refused(now, kind, machine))
        self._refused[shape.provider] = recent
        return self.meaning(shape.provider, kind)

    def meaning(self, provider: str, kind: Kind) -> Meaning:
        """What the refusals of this provider so far say about the kind."""
        recent = self._refused.get(provider, [])
        mine = [each for each in recent if each.kind == kind]
        if len(mine) < len(recent):
            return Meaning.THROTTLED
        if len(mine) < REFUSALS or len({each.machine for each in mine}) < MACHINES:
            return Meaning.UNCLEAR
        return Meaning.SOLD_OUT if self._worked.get(provider, -1) >= mine[0].at else Meaning.PROBE

    def worked(self, provider: str, now: int) -> Kind | None:
        """The provider answered something else; returns the kind that is sold out by that."""
        self._worked[provider] = now
        recent = self._refused.get(provider)
        if not recent:
            return None
        kind = recent[-1].kind
        return kind if self.meaning(provider, kind) is Meaning.SOLD_OUT else None

    def bought(self, shape: Shape) -> None:
        """A purchase of this kind succeeded: nothing said before counts against it."""
        kind = kind_of(shape)
        self._sold_out.pop(kind, None)
        self._drop(kind)

    def sold_out(self, shape: Shape) -> None:
        """The case of this kind is closed: what comes next is judged without it."""
        kind = kind_of(shape)
        self._sold_out[kind] = shape
        self._drop(kind)

    def kinds(self) -> Iterator[tuple[Kind, Shape]]:
        """Everything that was found sold out and has not been bought since."""
        return iter(self._sold_out.items())

    def _drop(self, kind: Kind) -> None:
        recent = self._refused.get(kind[0])
        if recent:
            self._refused[kind[0]] = [each for each in recent if each.kind != kind]
