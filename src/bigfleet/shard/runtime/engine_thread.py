"""The engine's own thread: steps and questions about the last step, one after the other, never two at a time.

What the core needs of a step is rendered here, so that the event loop does not have to. Rows of a step live until the
next one begins; a question is answered from the latest step, between two of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from bigfleet.shard.contract.shortfalls import Shorts, folded
from bigfleet.shard.contract.step_result import Listed
from bigfleet.shard.runtime.worker import Worker

if TYPE_CHECKING:
    from bigfleet.engine import Engine, StepResult
    from bigfleet.engine.batches import Conditions
    from bigfleet.engine.policy import Policy
    from bigfleet.engine.results import Action, AvailableCapacity, RollupOutcome
    from bigfleet.shard.contract.events import RunStep
    from bigfleet.shard.contract.step_result import Verdicts

T = TypeVar("T")

# Phases of a step as the engine names them, by the phase label they have had since the first dashboards.
PHASES = {
    "apply": "snapread",
    "fold": "snapread",
    "assign": "phase1",
    "preempt": "phase2",
    "reclaim": "phase3",
    "publish": "emit",
}


@dataclass(frozen=True, slots=True)
class Decided:
    """One step's result as the core takes it, and how long each phase took. Verdicts are rendered if somebody looks."""

    actions: Listed[Action]
    verdicts: Verdicts
    shortfalls: Shorts
    available: Listed[AvailableCapacity]
    rejected: Mapping[str, int]
    rollups: Mapping[str, RollupOutcome]
    deferred: int
    capped: int
    seconds: float
    processor_seconds: float
    phases: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Latest:
    """The last step, while its rows can be rendered."""

    step: int
    now: int
    result: StepResult


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An engine of its own in the state after a step, and what that step was given."""

    engine: Engine
    policy: Policy
    now: int
    conditions: Conditions


class EngineThread:
    """Owns the engine. `step` and `ask` may be called from the event loop at any time."""

    def __init__(self, engine: Engine, record: Callable[[RunStep], None] = lambda wanted: None) -> None:
        self._engine = engine
        self._record = record
        self._thread = Worker("engine")
        self._latest: Latest | None = None
        self.warm = False

    async def warm_up(self) -> float:
        """Have every kernel ready before the first step waits for it; returns the seconds it took."""
        began = time.monotonic()
        await self._thread.run(self._engine.warm)
        self.warm = True
        return time.monotonic() - began

    async def step(self, wanted: RunStep) -> Decided:
        return await self._thread.run(self._step, wanted)

    async def ask(self, question: Callable[[Latest], T]) -> T | None:
        """The answer to a question about the latest step, None before the first; asked in the engine's thread."""
        return await self._thread.run(lambda: None if self._latest is None else question(self._latest))

    async def snapshot(self) -> Snapshot | None:
        """A copy of the engine that anybody may ask anything, None before the first step."""
        return await self._thread.run(self._copy)

    def _copy(self) -> Snapshot | None:
        latest = self._engine.latest
        if latest is None:
            return None
        return Snapshot(self._engine.copy(), latest.policy, latest.result.now, latest.conditions)

    def close(self) -> None:
        self._thread.close()

    @property
    def busy(self) -> bool:
        return self._thread.busy

    def _step(self, wanted: RunStep) -> Decided:
        self._record(wanted)
        began = last = time.monotonic()
        worked = time.thread_time()
        phases: dict[str, float] = {}

        def probe(name: str) -> None:
            nonlocal last
            now = time.monotonic()
            phase = PHASES.get(name, name)
            phases[phase] = phases.get(phase, 0.0) + now - last
            last = now

        result = self._engine.step(
            wanted.machines, wanted.demand, wanted.policy, wanted.now, wanted.conditions, probe=probe
        )
        self._latest = Latest(wanted.step, wanted.now, result)
        made = Listed(tuple(result.actions.rows()))
        shortfalls = Shorts(folded(result.shortfalls))
        available = Listed(tuple(row for name in wanted.hints for row in self._engine.available_capacity(name)))
        probe("publish")
        return Decided(
            made,
            result.verdicts,
            shortfalls,
            available,
            result.rejected,
            result.rollups,
            int(result.deferred),
            int(result.capped),
            time.monotonic() - began,
            time.thread_time() - worked,
            phases,
        )
