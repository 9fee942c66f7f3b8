"""What a benchmark shape is: how to fill an engine, and what one timed cycle feeds it.

A workload's `feeds` yields what each timed step gets; an untimed `reset` step comes first where all is decided anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bigfleet.engine.batches import Conditions, DemandBatch, MachineBatch
from bigfleet.engine.engine import StepResult
from bigfleet.engine.policy import Policy

CLOSED = Conditions(acquire=False, preempt=False, reclaim=False, release=False)
OPEN = Conditions()


@dataclass(frozen=True, slots=True)
class Feed:
    """Input of one timed step."""

    machines: MachineBatch | None = None
    demand: DemandBatch | None = None
    conditions: Conditions = OPEN


@dataclass(frozen=True, slots=True)
class Workload:
    """A populated fleet and its traffic. `load` makes its batch on call, so memory figures are the engine's."""

    load: Callable[[], MachineBatch]
    demand: DemandBatch
    feeds: Callable[[], Iterator[Feed]]
    facts: dict[str, object]
    reset: bool = False
    # Every timed step is the first with demand of an engine that has just loaded its machines.
    fresh: bool = False
    policy: Policy = field(default_factory=Policy)
    tell: Callable[[StepResult], None] = lambda _result: None
    check: Callable[[StepResult], str | None] = lambda _result: None


@dataclass(frozen=True, slots=True)
class ShapeSpec:
    """A named shape with the figure published for it and our limit, both in milliseconds where they exist."""

    name: str
    build: Callable[[], Workload]
    about: str
    published: str
    limit_ms: float | None = None
    settle: int = 3
