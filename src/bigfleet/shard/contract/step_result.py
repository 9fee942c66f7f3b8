"""The part of an engine step's result that the shard uses, and how a step is taken.

The engine's tables render rows until its next step begins; what the core keeps of them it reads while it handles
`StepDone`. The process takes steps in a thread of their own, the simulator inline.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np
from msgspec import Struct, structs

from bigfleet.engine.outcome.verdict import VerdictBatch
from bigfleet.engine.results import Action, AvailableCapacity, RefusedRows, RollupOutcome, Shortfall, Verdict
from bigfleet.shard.contract.coordination import Ranking
from bigfleet.shard.contract.shortfalls import Shorts, shorts
from bigfleet.shard.contract.victims import victims_for

if TYPE_CHECKING:
    from bigfleet.engine import Engine
    from bigfleet.engine.engine import Probe
    from bigfleet.shard.contract.events import RunStep

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Rows(Protocol[T_co]):
    """A table that renders its rows when someone asks."""

    def rows(self) -> Sequence[T_co]: ...


class Verdicts(Protocol):
    """Verdicts of all entries, or of the unsatisfied ones only, which costs much less."""

    def rows(self) -> Iterable[Verdict]: ...

    def unmet(self) -> Iterable[Verdict]: ...


class Listed(Struct, Generic[T], frozen=True):
    """Rows that exist already."""

    items: tuple[T, ...]

    def rows(self) -> Sequence[T]:
        return self.items


class StepResult(Struct, frozen=True):
    """What one step decided, together with the hints that were asked for."""

    actions: Rows[Action]
    verdicts: Verdicts
    shortfalls: Rows[Shortfall] | Shorts
    available: Rows[AvailableCapacity]
    rejected: Mapping[str, int]
    rollups: Mapping[str, RollupOutcome]
    deferred: int
    capped: int
    victims: Mapping[str, Ranking] = {}
    # First old machines of moves that are given up.
    aborted: tuple[str, ...] = ()
    # Clusters that say they lack units and are not believed.
    doubted: tuple[str, ...] = ()
    # Counted rows of roll-ups that this step left out, by cluster.
    refused: Mapping[str, RefusedRows] = {}

    def rendered(self) -> StepResult:
        """The same with rows made and shortfalls folded, so that whoever handles it does not have to."""
        return structs.replace(self, actions=Listed(tuple(self.actions.rows())), shortfalls=shorts(self.shortfalls))


def unmet_of(verdicts: Verdicts, clusters: Collection[str]) -> Iterable[Verdict]:
    """Unsatisfied needs of some clusters only; those of all may be a hundred thousand."""
    if not isinstance(verdicts, VerdictBatch):
        return (verdict for verdict in verdicts.unmet() if verdict.key.cluster in clusters)
    needs = verdicts.needs
    numbers = [number for number, name in enumerate(needs.clusters) if name in clusters]
    pending = verdicts.pending.astype(np.int64)
    mine = pending[np.isin(needs.current.e.cluster[pending], numbers)]
    return (verdict for verdict in verdicts.of(mine) if not verdict.satisfied)


def take_step(engine: Engine, wanted: RunStep, probe: Probe | None = None) -> StepResult:
    """Run the step the core asked for; its tables can be read until the next one. `probe` hears of each phase's end."""
    result = engine.step(wanted.machines, wanted.demand, wanted.policy, wanted.now, wanted.conditions, probe=probe)
    return StepResult(
        result.actions,
        result.verdicts,
        result.shortfalls,
        Listed(tuple(row for cluster in wanted.hints for row in engine.available_capacity(cluster))),
        result.rejected,
        result.rollups,
        int(result.deferred),
        int(result.capped),
        {each.transfer: victims_for(engine.copy(), each, wanted.policy, wanted.now) for each in wanted.victims},
        tuple(result.aborted),
        tuple(result.doubted),
        result.refused,
    )
