"""The engine's own thread: steps and questions about the last step, one after the other, never two at a time.

What the core needs of a step is rendered here, so that the event loop does not have to. Rows of a step live until the
next one begins; a question is answered from the latest step, between two of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from bigfleet.shard.contract.step_result import StepResult, take_step
from bigfleet.shard.runtime.worker import Worker

if TYPE_CHECKING:
    from bigfleet.engine import Engine
    from bigfleet.engine.batches import Conditions
    from bigfleet.engine.engine import StepResult as EngineResult
    from bigfleet.engine.policy import Policy
    from bigfleet.shard.contract.events import RunStep

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


class StepTimes(Struct, frozen=True):
    """How long a step took, in all and by phase."""

    seconds: float = 0.0
    processor_seconds: float = 0.0
    phases: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True)
class Latest:
    """The last step, while its rows can be rendered."""

    step: int
    now: int
    result: EngineResult


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
        # Of the last step; read it before the next one begins.
        self.times = StepTimes()

    async def between_steps(self, work: Callable[[], None]) -> None:
        """Does something that no step may be under way for."""
        await self._thread.run(work)

    async def step(self, wanted: RunStep) -> StepResult:
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

    def _step(self, wanted: RunStep) -> StepResult:
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

        result = take_step(self._engine, wanted, probe)
        assert self._engine.latest is not None
        self._latest = Latest(wanted.step, wanted.now, self._engine.latest.result)
        rendered = result.rendered()
        probe("publish")
        self.times = StepTimes(time.monotonic() - began, time.thread_time() - worked, phases)
        return rendered
