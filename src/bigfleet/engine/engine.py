"""The engine: one call applies what changed and decides everything a shard does (`docs/engine.md`).

Pure: no clock, no I/O, no logging. One thread owns an engine. Results share the engine's columns, so rows are rendered
before the next step; counts may be kept. A step without news and before `next_timer` returns the previous decision.
`step` tells the story; its stages are modules of `stages`, and none of them is called from elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from bigfleet.engine.batches import Conditions, DemandBatch, MachineBatch
from bigfleet.engine.catalog.catalog import Catalog
from bigfleet.engine.decide.workbench import Workbench
from bigfleet.engine.decide.world import Rules, World
from bigfleet.engine.demand.demand import Demand
from bigfleet.engine.explain import REMEDIES, TRIALS, Explanation, RemedyKind, copied, explain
from bigfleet.engine.fleet.fleet import Fleet
from bigfleet.engine.fleet.machines import ANY_MACHINE, MachineFilter, MachineRow, one_machine, page_of_machines
from bigfleet.engine.giving_back.giving import GivingBack
from bigfleet.engine.kernels import jit
from bigfleet.engine.nodes.nodes import Nodes
from bigfleet.engine.outcome.capacity import FreeCapacity
from bigfleet.engine.outcome.outcome import Latest, Reporter, StepResult
from bigfleet.engine.policy import Policy
from bigfleet.engine.results import AvailableCapacity, NeedKey
from bigfleet.engine.stages import reporting
from bigfleet.engine.stages.applying import Inputs, nothing_changed
from bigfleet.engine.stages.assigning import assign, fold
from bigfleet.engine.stages.picking import Picks
from bigfleet.engine.stages.preempting import preempt
from bigfleet.engine.stages.publishing import publish
from bigfleet.engine.stages.running import Running
from bigfleet.engine.stages.stores import Stores
from bigfleet.engine.turnover import Tables

Probe = Callable[[str], None]
# What a probe is told, in order, each when it has ended.
PHASES = ("apply", "fold", "assign", "preempt", "reclaim", "publish")


class Engine:
    """A shard's decision core."""

    def __init__(self, reporter: Reporter | None = None) -> None:
        self.reporter = reporter
        # For whoever compares this engine's numbers with another's: nothing is given back, so that they stay.
        self.keeps_numbers = False
        self._stores = Stores()
        self._inputs = Inputs(self._stores)
        self._bench = Workbench()
        self._giving = GivingBack()
        self._picks = Picks()
        self._capacity = FreeCapacity()
        # How many steps there were, for results to see whether they are still the last one's.
        self._clock = np.zeros(1, np.int64)
        self._last: Latest | None = None

    # ---- the step --------------------------------------------------------------------------------------------------

    def step(
        self,
        machines: MachineBatch | None,
        demand: DemandBatch | None,
        policy: Policy,
        now: int,
        conditions: Conditions = Conditions(),  # noqa: B008  a frozen value
        probe: Probe | None = None,
    ) -> StepResult:
        """Applies what changed and decides. `probe` is called at the end of each phase."""
        tell = probe if probe is not None else _nobody
        last = self._last
        if last is not None and nothing_changed(machines, demand) and _holds(last, policy, conditions, now):
            for phase in PHASES:
                tell(phase)
            return self._report(self._again(last, now))
        self._clock[0] += 1
        applied = self._inputs.apply(machines, demand, policy, conditions, now, last, keeps_numbers=self.keeps_numbers)
        if applied.renumbered:
            self._bench = Workbench()
        tell("apply")
        w = fold(self._stores, self._bench)
        tell("fold")
        rules = Rules(
            now, conditions.acquire, policy.cycle_ns, policy.park_after_cycles, policy.reprobe_every_cycles,
            policy.same_candidates,
        )  # fmt: skip
        run = Running(self._stores, self._bench, self._giving, policy, conditions, applied, rules, w)
        if self.nodes.heard:
            reporting.look(run)
        assign(run)
        tell("assign")
        preempt(run)
        tell("preempt")
        picked = self._picks.pick(run)
        tell("reclaim")
        result, stable = publish(run, picked, self._clock)
        self._last = Latest(policy, conditions, result, stable)
        tell("publish")
        return self._report(result)

    def _report(self, result: StepResult) -> StepResult:
        if self.reporter is not None:
            self.reporter.decided(result)
        return result

    def _again(self, last: Latest, now: int) -> StepResult:
        """The previous decision, seen from now."""
        before = last.result
        last.result = replace(
            before,
            now=now,
            verdicts=replace(before.verdicts, now=now),
            shortfalls=replace(before.shortfalls, now=now),
            rejected={},
            rollups={},
            refused={},
        )
        return last.result

    # ---- between steps ---------------------------------------------------------------------------------------------

    @property
    def catalog(self) -> Catalog:
        return self._stores.catalog

    @property
    def fleet(self) -> Fleet:
        return self._stores.fleet

    @property
    def demand(self) -> Demand:
        return self._stores.demand

    @property
    def nodes(self) -> Nodes:
        return self._stores.nodes

    def available_capacity(self, cluster: str) -> list[AvailableCapacity]:
        """What free supply a cluster's entries could hope for, by fingerprint."""
        number = self.fleet.cluster_index.get(cluster)
        if number is None or self._last is None:
            return []
        return self._capacity.of(self._last.result.verdicts.needs, number)

    @property
    def latest(self) -> Latest | None:
        """The last step, None before the first."""
        return self._last

    def explain(self, key: NeedKey, kinds: tuple[RemedyKind, ...] = REMEDIES, trials: int = TRIALS) -> Explanation:
        """Why a need got what it got, and the first single change that would satisfy it (`docs/engine.md` §8)."""
        return explain(self, key, kinds, trials)

    def written(self, w: World) -> World:
        """The last step's world with all credit in its log."""
        return self._bench.written(w, self.fleet)

    def copy(self) -> Engine:
        """An engine of its own in the same state, for questions that begin with "what if"."""
        return copied(self)

    def give_back(self) -> None:
        """The next step that decides anything gives back what is unused, however little it is."""
        self._inputs.wants_room = True

    @property
    def tables(self) -> Tables:
        """How much is interned."""
        return self._stores.tables

    def validate(self) -> None:
        """Every invariant of what outlives a step; for tests, between steps."""
        self._stores.validate()

    def machine(self, id: str) -> MachineRow | None:
        """One machine as the engine knows it, None if it does not."""
        return one_machine(self.fleet, id)

    def machines(self, where: MachineFilter = ANY_MACHINE, after: str = "", limit: int = 500) -> list[MachineRow]:
        """The first machines of a kind behind an id, in text order of their ids."""
        return page_of_machines(self.fleet, where, after, limit)

    def warm(self, progress: jit.Progress | None = None) -> None:
        """Compiles every kernel, or loads it from the cache, telling (done, total)."""
        jit.warm(progress)


def _holds(last: Latest, policy: Policy, conditions: Conditions, now: int) -> bool:
    """Whether the last decision, given no news, is also the one of now."""
    return (
        last.stable
        and last.result.now <= now < last.result.next_timer
        and (last.policy is policy or last.policy == policy)
        and (last.conditions is conditions or last.conditions == conditions)
    )


def _nobody(_name: str) -> None:
    """Whom the engine tells about its phases when no probe was given."""


__all__ = ["Engine", "Latest", "Reporter", "StepResult"]
