"""What a provider means that refuses calls: one kind is sold out, it wants fewer calls, or it is away.

A provider that says which is believed. One that only refuses is understood by the pattern: three refusals of one kind
on two machines within a minute, no purchase of the kind in between, while other calls of that provider are answered,
are a stock-out. A limit on calls is proved by what no stock-out explains: a refused call that buys nothing, refusals
of two kinds at once, a purchase that is taken seconds after one of its kind was refused. While it is proved refusals
are the limit's, unless a kind is refused so often while others are taken that chance cannot explain it. Refusals right
after a purchase of the kind prove neither. Judges; the executor acts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from bigfleet.engine.batches import Shape
from bigfleet.engine.policy import MINUTE, SECOND
from bigfleet.shard.core.state.backoff import Kind, kind_of

WITHIN = MINUTE
REFUSALS = 3
MACHINES = 2
# So long a purchase that was taken says that there was some left, and so long a refusal that there was none.
LATELY = 10 * SECOND
# A limit that was proved is remembered for so long.
REMEMBERED = 2 * MINUTE
# Refusals in a row of one kind are no accident when chance explains them less often than that.
CHANCE = 0.01


class Meaning(Enum):
    """How refused purchases are to be understood."""

    UNCLEAR = auto()
    PROBE = auto()
    """It looks like a stock-out; another call must be answered before it counts as one."""
    SOLD_OUT = auto()
    THROTTLED = auto()
    """It is proved anew."""
    UNPROVED = auto()
    """A limit was proved lately, or one of the kind was taken a moment ago: fewer calls will show what it is."""


@dataclass(slots=True)
class Tally:
    """Calls of one provider, and until when it counts as one that limits them."""

    taken: int = 0
    # Waves of refusals: what was under way when one came says nothing new.
    refused: int = 0
    refused_at: int = 0
    limited_until: int = 0

    def refuses(self, sent: int, now: int) -> bool:
        """A call that went out then was refused; whether that is of a new wave."""
        if sent < self.refused_at:
            return False
        self.refused += 1
        self.refused_at = now
        return True


@dataclass(slots=True)
class Run:
    """Waves of refusals in a row of one kind; the tally when it began."""

    taken_before: int
    refused_before: int
    refused: int = 0
    last: int = 0
    machines: set[str] = field(default_factory=set)


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
        # Of those the ones that only the pattern says, and since when.
        self._guessed: dict[Kind, int] = {}
        self._tallies: dict[str, Tally] = {}
        self._runs: dict[Kind, Run] = {}
        self._taken: dict[Kind, int] = {}

    def refused(self, shape: Shape, machine: str, sent: int, now: int) -> Meaning:
        """A purchase was refused without a reason."""
        kind, tally = kind_of(shape), self._tally(shape.provider)
        run = self._runs.get(kind)
        if run is None or now - run.last > WITHIN:
            run = self._runs[kind] = Run(tally.taken, tally.refused)
        run.refused += tally.refuses(sent, now)
        run.last = now
        run.machines.add(machine)
        if now < tally.limited_until:
            return Meaning.SOLD_OUT if _no_accident(run, tally) else Meaning.UNPROVED
        if now - self._taken.get(kind, -LATELY) < LATELY:
            return Meaning.UNPROVED
        recent = [each for each in self._refused.get(shape.provider, ()) if now - each.at <= WITHIN]
        recent.append(Refused(now, kind, machine))
        self._refused[shape.provider] = recent
        return self.meaning(shape.provider, kind)

    def limits(self, provider: str, now: int) -> tuple[Kind, ...]:
        """It is proved that a provider limits calls; returns the kinds that were wrongly called sold out."""
        self._tally(provider).limited_until = now + REMEMBERED
        self._refused.pop(provider, None)
        wrong = tuple(kind for kind, at in self._guessed.items() if kind[0] == provider and now - at <= WITHIN)
        for kind in wrong:
            self._sold_out.pop(kind, None)
            del self._guessed[kind]
        return wrong

    def limited(self, provider: str, now: int) -> bool:
        """Whether a limit on calls was proved lately."""
        return provider in self._tallies and now < self._tallies[provider].limited_until

    def refused_other(self, provider: str, sent: int, now: int) -> None:
        """A call that buys nothing was refused."""
        self._tally(provider).refuses(sent, now)

    def taken(self, shape: Shape, sent: int, now: int, *, purchase: bool) -> bool:
        """A call that went out then was taken; whether that proves a limit on calls."""
        self._tally(shape.provider).taken += 1
        if not purchase:
            return False
        kind = kind_of(shape)
        self._taken[kind] = now
        self._drop(kind)
        run = self._runs.pop(kind, None)
        return run is not None and run.last < sent and now - run.last <= LATELY

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
        self._guessed.pop(kind, None)
        self._drop(kind)

    def sold_out(self, shape: Shape, now: int, *, said: bool) -> None:
        """The case of this kind is closed, because the provider `said` so or by the pattern: what comes next is judged
        without it."""
        kind = kind_of(shape)
        self._sold_out[kind] = shape
        if said:
            self._guessed.pop(kind, None)
        else:
            self._guessed[kind] = now
        self._runs.pop(kind, None)
        self._drop(kind)

    def kinds(self) -> Iterator[tuple[Kind, Shape]]:
        """Everything that was found sold out and has not been bought since."""
        return iter(self._sold_out.items())

    def _drop(self, kind: Kind) -> None:
        recent = self._refused.get(kind[0])
        if recent:
            self._refused[kind[0]] = [each for each in recent if each.kind != kind]

    def _tally(self, provider: str) -> Tally:
        return self._tallies.setdefault(provider, Tally())


def _no_accident(run: Run, tally: Tally) -> bool:
    """Whether others are taken so often that a kind which is always refused must be sold out."""
    taken = tally.taken - run.taken_before
    refused = tally.refused - run.refused_before - run.refused
    if not taken or run.refused < REFUSALS or len(run.machines) < MACHINES:
        return False
    return (1.0 - taken / (taken + refused + 1)) ** run.refused < CHANCE
