"""When to take the next step, and what the outside allows in it.

A step is due every cycle interval, and early, though not more often than once per second, when something changed; at
once when the last one left roll-ups over. Never two at a time: what changes meanwhile waits for the next one.
"""

from __future__ import annotations

from collections.abc import Callable

from bigfleet.engine.batches import Conditions
from bigfleet.engine.policy import IdleHold, Policy
from bigfleet.shard.contract.coordination import VictimQuestion
from bigfleet.shard.contract.events import RunStep
from bigfleet.shard.core.actions.executor import Executor
from bigfleet.shard.core.actions.moves import Moves
from bigfleet.shard.core.clusters.demand import Demand
from bigfleet.shard.core.clusters.hints import Hints
from bigfleet.shard.core.clusters.placement import Placement
from bigfleet.shard.core.clusters.stragglers import give_up_stragglers
from bigfleet.shard.core.rails import Rails
from bigfleet.shard.core.reconcile import Reconcile
from bigfleet.shard.core.state.backoff import breakers
from bigfleet.shard.core.state.state import ShardState

TIMER = "cycle"
_PRUNE_EVERY = 64


class Cycle:
    """The clockwork of steps."""

    def __init__(
        self,
        state: ShardState,
        demand: Demand,
        executor: Executor,
        reconcile: Reconcile,
        rails: Rails,
        hints: Hints,
        placement: Placement,
        moves: Moves,
        victims: Callable[[], tuple[VictimQuestion, ...]] = tuple,
    ) -> None:
        self._state = state
        self._demand = demand
        self._executor = executor
        self._reconcile = reconcile
        self._rails = rails
        self._hints = hints
        self._victims = victims
        self._placement = placement
        self._moves = moves
        self._policy = state.config.policy()
        self.number = 0
        self.started = 0
        self.running = False
        self._last = 0
        # What the timer was last set by; most events change neither.
        self._armed_for: tuple[int, bool] | None = None
        # The last conditions and what they came from: they seldom change.
        self._facts: tuple[object, ...] = ()
        self._conditions = Conditions()

    def start(self) -> None:
        self._last = self.started = self._state.now
        self._arm()

    def consider(self) -> None:
        """After every event: take the step that is due, or say when it will be."""
        if self.running:
            return
        state = self._state
        waited = state.now >= self._last + state.config.early_cycle_interval
        early = state.wants_cycle and (waited or self._demand.backlog)
        if early or state.now >= self._last + state.config.cycle_interval:
            self._take()
        elif self._armed_for != (self._last, state.wants_cycle):
            self._arm()

    def done(self, step: int) -> bool:
        """Whether this answers the running step."""
        if not self.running or step != self.number:
            return False
        self.running = False
        return True

    @property
    def conditions(self) -> Conditions:
        open_ = self._reconcile.settled
        paused, dry_run, rests = (
            self._rails.paused,
            self._rails.dry_run,
            breakers(self._state.breakers, self._state.now),
        )
        placement = self._placement
        kept = (
            placement.backoffs.in_force(),
            placement.spared.rests(),
            # Before everything was listed the engine would take their machines for lost and give the moves up.
            self._moves.conditions(self._demand.knows_nodes) if self._reconcile.all_listed else (),
            placement.evictions.allowed(),
        )
        release = open_ and not self._clusters_return
        facts = (open_, release, paused, dry_run, rests, kept)
        if facts != self._facts:
            self._facts = facts
            self._conditions = Conditions(open_, open_, open_, release, paused, dry_run, rests, *kept)
        return self._conditions

    @property
    def _clusters_return(self) -> bool:
        """After a restart, what is idle may be somebody's who is not back yet: giving it up means buying it again."""
        state = self._state
        return state.now < self.started + state.config.return_window and self._demand.quarantine.unheard

    def _take(self) -> None:
        state = self._state
        self.number += 1
        self.running = True
        self._last = state.now
        self._armed_for = None
        state.cycle_begins()
        state.timers.cancel(TIMER, "")
        self._placement.backoffs.find_overdue()
        self._placement.steady.look(self._moves.clusters(), listed=self._reconcile.all_listed)
        give_up_stragglers(state)
        if self.number % _PRUNE_EVERY == 0:
            self._prune()
        state.turn.emit(
            RunStep(
                step=self.number,
                now=state.now,
                machines=state.fleet.batch(state.not_before, state.deadlines),
                demand=self._demand.batch(),
                policy=self._effective_policy(),
                conditions=self.conditions,
                hints=self._hints.ask(),
                victims=self._victims(),
            )
        )

    def _effective_policy(self) -> Policy:
        """Providers that cannot delete keep their idle machines for ever."""
        if not self._executor.failed_calls.cannot_delete:
            return self._policy
        holds = dict(self._policy.idle_hold_by_provider)
        holds.update({provider: IdleHold(0, 0) for provider in self._executor.failed_calls.cannot_delete})
        return self._policy.with_(idle_hold_by_provider=holds)

    def _prune(self) -> None:
        state = self._state
        for rests in (state.machine_rests, state.need_rests, state.breakers):
            rests.prune(state.now)
        self._executor.failures.prune(state.now)
        self._demand.forget_departed()
        self._placement.prune()
        self._moves.prune()
        state.deadlines.prune(state.now)
        state.not_before = {key: until for key, until in state.not_before.items() if until > state.now}

    def _arm(self) -> None:
        state = self._state
        self._armed_for = (self._last, state.wants_cycle)
        wait = state.config.early_cycle_interval if state.wants_cycle else state.config.cycle_interval
        state.timers.arm(TIMER, "", self._last + min(wait, state.config.cycle_interval))
