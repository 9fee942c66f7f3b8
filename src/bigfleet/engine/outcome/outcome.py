"""What a step decided, whole: its result, what the engine remembers of the last one, and who hears of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from msgspec import Struct

from bigfleet.engine.batches import Conditions
from bigfleet.engine.fleet.tally import Counts
from bigfleet.engine.outcome.actions import ActionBatch
from bigfleet.engine.outcome.shortfall import ShortfallBatch
from bigfleet.engine.outcome.verdict import VerdictBatch
from bigfleet.engine.policy import Policy
from bigfleet.engine.results import RefusedRows, RollupOutcome


class Reporter(Protocol):
    """Somebody who wants to know what each step decided; nobody pays when there is none. `explain.LossReporter` is one
    that also hears why candidates were lost."""

    def decided(self, result: StepResult) -> None: ...


class StepResult(Struct, frozen=True, eq=False):
    """Everything one step decided. `next_timer` is when a step without news could decide differently; `aborted`
    names the first old machine of every move that cannot go on, `doubted` clusters that say they lack units and are not
    believed (P19), `refused` counted rows of this step's roll-ups that were left out (P1), by cluster."""

    now: int
    actions: ActionBatch
    verdicts: VerdictBatch
    shortfalls: ShortfallBatch
    rejected: dict[str, int]
    rollups: dict[str, RollupOutcome]
    deferred: int
    capped: int
    counts: Counts
    next_timer: int
    aborted: tuple[str, ...] = ()
    doubted: tuple[str, ...] = ()
    refused: dict[str, RefusedRows] = {}


@dataclass
class Latest:
    """What the previous step was given and decided: to see whether another one can differ, and to explain it."""

    policy: Policy
    conditions: Conditions
    result: StepResult
    stable: bool
    fields: dict[str, object] = field(default_factory=dict)
