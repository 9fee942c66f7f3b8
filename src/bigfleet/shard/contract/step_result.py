"""The part of an engine step's result that the shard uses, and how a step is taken.

The engine's tables render rows until its next step begins; what the core keeps of them it reads while it handles
`StepDone`. `take_step` is for whoever runs steps inline; the process runs them in a thread of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from msgspec import Struct

from bigfleet.engine.results import Action, AvailableCapacity, RollupOutcome, Shortfall, Verdict

if TYPE_CHECKING:
    from bigfleet.engine import Engine
    from bigfleet.shard.contract.events import RunStep
    from bigfleet.shard.contract.shortfalls import Shorts

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Rows(Protocol[T_co]):
    """A table that renders its rows when someone asks."""

    def rows(self) -> Sequence[T_co]: ...


class Verdicts(Protocol):
    """Verdicts of all entries, or of the unsatisfied ones only, which costs much less."""

    def rows(self) -> Iterable[Verdict]: ...

    def unmet(self) -> Iterable[Verdict]: ...


class StepResult(Protocol):
    """What one step decided."""

    @property
    def actions(self) -> Rows[Action]: ...

    @property
    def verdicts(self) -> Verdicts: ...

    @property
    def shortfalls(self) -> Rows[Shortfall] | Shorts: ...

    @property
    def available(self) -> Rows[AvailableCapacity]: ...

    @property
    def rejected(self) -> Mapping[str, int]: ...

    @property
    def rollups(self) -> Mapping[str, RollupOutcome]: ...

    @property
    def deferred(self) -> int: ...

    @property
    def capped(self) -> int: ...


class Listed(Struct, Generic[T], frozen=True):
    """Rows that exist already."""

    items: tuple[T, ...]

    def rows(self) -> Sequence[T]:
        return self.items


class TakenStep(Struct, frozen=True):
    """A step's result together with the hints that were asked for."""

    actions: Rows[Action]
    verdicts: Verdicts
    shortfalls: Rows[Shortfall]
    available: Rows[AvailableCapacity]
    rejected: Mapping[str, int]
    rollups: Mapping[str, RollupOutcome]
    deferred: int
    capped: int


def take_step(engine: Engine, wanted: RunStep) -> TakenStep:
    """Run the step the core asked for; its tables can be read until the next one."""
    result = engine.step(wanted.machines, wanted.demand, wanted.policy, wanted.now, wanted.conditions)
    return TakenStep(
        result.actions,
        result.verdicts,
        result.shortfalls,
        Listed(tuple(row for cluster in wanted.hints for row in engine.available_capacity(cluster))),
        result.rejected,
        result.rollups,
        result.deferred,
        result.capped,
    )
