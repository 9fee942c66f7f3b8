"""What consolidation decided, carried out: nodes closed and opened again, moves begun and given up, with their price.

Closing is the cluster's to do and nothing at a provider; a move is an ordinary purchase or drain with a journalled
intent beside it. It has a switch of its own and a dry run: then it is told, and nothing is done. Nothing here decides
what is worth it.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from bigfleet.engine.placement import RestKind
from bigfleet.engine.results import Action, ActionKind, Reason
from bigfleet.model.machine import CapacityType
from bigfleet.model.resources import Resources
from bigfleet.shard.contract.outcomes import Level, Outcome
from bigfleet.shard.core.actions.moves import Moves
from bigfleet.shard.core.state.enum_aliases import CONFIGURED, IDLE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bigfleet.model.profile import Profile
    from bigfleet.shard.contract.events import JournalState
    from bigfleet.shard.core.actions.executor import Executor
    from bigfleet.shard.core.clusters.demand import Demand
    from bigfleet.shard.core.clusters.nodes import Nodes
    from bigfleet.shard.core.clusters.placement import Placement
    from bigfleet.shard.core.state.fleet import Record
    from bigfleet.shard.core.state.operations import Operation
    from bigfleet.shard.core.state.state import ShardState

CLOSINGS = "bigfleet_shard_consolidation_closings_total"
EVICTIONS = "bigfleet_shard_consolidation_evictions_total"
REFUSALS = "bigfleet_shard_consolidation_refusals_total"
# Of its actions these are consolidation's own; reopening serves demand.
_ITS_OWN = frozenset({Reason.CLOSE, Reason.MOVE})
_OWNED = frozenset({CapacityType.BARE_METAL, CapacityType.RESERVED})


class Consolidation:
    """Closings and moves under way."""

    def __init__(
        self, state: ShardState, demand: Demand, nodes: Nodes, placement: Placement, boot: JournalState
    ) -> None:
        self._state = state
        self._demand = demand
        self._nodes = nodes
        self._placement = placement
        self.moves = Moves(state, placement, boot.rows)

    def only_told(self, action: Action) -> bool:
        """Whether its own dry run keeps this action back."""
        return self._state.config.consolidate_dry_run and action.reason in _ITS_OWN

    # --------------------------------------------------------------------------------------------------------- closing

    def turn(self, action: Action, record: Record) -> Outcome | None:
        """Close or reopen a node; None when that does not apply any more."""
        state, key, closing = self._state, record.key, action.kind == ActionKind.CLOSE
        if (
            record.state != CONFIGURED
            or record.cluster != action.cluster
            or not record.owned
            or state.halted
            or state.operations.on(key) is not None
        ):
            return None
        if not self._nodes.close(action.cluster, key, closing=closing):
            return Outcome.NO_SESSION
        self._placement.reports.lay(key, closing=closing)
        price = _price(record)
        if closing:
            state.stories.tell(key, state.now, f"closed to new pods ({action.reason.value}): it costs {price}")
        else:
            state.stories.tell(key, state.now, f"opened to new pods ({action.reason.value}) instead of buying: {price}")
            state.deadlines.reopened(key, state.now)
            state.fleet.touch(record)
            self._placement.spared.spare(key, RestKind.CLOSE, state.config.reopened_rest)
        state.turn.count(CLOSINGS, "closed" if closing else "reopened")
        return Outcome.SUCCESS

    # ----------------------------------------------------------------------------------------------------------- moves

    def profile_of(self, action: Action) -> Profile | None:
        """For whom the new machine of a move is bound: the most important of the pods that will go there."""
        prints = {name for key in action.replaces for name in self._prints(key)}
        found = [profile for name in prints if (profile := self._demand.profile(action.cluster, name)) is not None]
        return min(found, key=lambda profile: (-profile.priority, profile.fingerprint), default=None)

    def load_of(self, action: Action) -> str:
        """What the pods that will go to the new machine of a move take together, as a row's unit is written."""
        used: Counter[str] = Counter()
        for key in action.replaces:
            report = self._placement.reports.on(key)
            used.update({name: amount for name, amount in (report.used if report else ()) if name != "pods"})
        return Resources(used).canonical

    def begun(self, action: Action, record: Record) -> str:
        """An action of a move begins: keep the intent if it is the first one. Returns what it saves, in words."""
        if action.reason != Reason.MOVE:
            return ""
        open_ = self.moves.of(record.key)
        if open_ is not None:
            return f"saves ${open_.saving:.3f}/h"
        old = action.replaces or (record.key,)
        new = record if action.replaces else None
        before, after = self._costs(old, new)
        pods = sum(self._pods(key) for key in old)
        self.moves.begin(action.cluster, old, "" if new is None else new.key, before - after)
        self._placement.evictions.spend(action.cluster, pods, self._least_left(old, new))
        self._state.turn.count(EVICTIONS, amount=pods)
        who = "1 pod moves" if pods == 1 else f"{pods} pods move"
        words = f"saves ${before - after:.3f}/h: ${after:.3f}/h instead of ${before:.3f}/h, {who}"
        for key in old:
            self._state.stories.tell(key, self._state.now, f"its pods move ({action.reason.value}): {words}")
        return words

    def ended(self, operation: Operation, outcome: Outcome) -> None:
        """An operation is over: what it means for the move its machine takes part in."""
        record = operation.machine
        move = self.moves.of(record.key)
        if move is None:
            return
        if record.key in move.old:
            if outcome == Outcome.SUCCESS:
                self.moves.given_back(record.key)
            else:
                refused = outcome == Outcome.REFUSED
                self.moves.abort(record.key, f"{record.key} was not drained ({outcome})", refused=refused)
        elif outcome != Outcome.SUCCESS and (operation.otherwise or record.state not in (IDLE, CONFIGURED)):
            # One that is Idle and as it was offered is bound again by the engine, as long as the move is worth it.
            self.moves.abort(record.key, f"{record.key} did not come up ({outcome})")

    def refused(self, operation: Operation) -> None:
        """The cluster has no room for the pods of a machine it was asked to give up."""
        state, key = self._state, operation.machine.key
        state.turn.count(REFUSALS, operation.cluster)
        self._placement.spared.spare(key, RestKind.DRAIN, state.config.refused_rest)

    def undrained(self, machine: str) -> None:
        """A drain was taken back: there is room again that no roll-up knows of yet."""
        record = self._state.fleet.machines.get(machine)
        if record is not None and record.state == CONFIGURED:
            self._placement.reports.lay(machine, closing=False)
            self._state.deadlines.reopened(machine, self._state.now)

    def aborted(self, executor: Executor, first: Iterable[str]) -> None:
        """The engine gave these moves up: machines that are still being emptied for them stay."""
        for key in first:
            move = self.moves.abort(key, "it is not worth it any more, or its room is wanted")
            for machine in () if move is None else move.old:
                operation = self._state.operations.on(machine)
                if operation is not None and operation.reason == Reason.MOVE and executor.drains.cancellable(operation):
                    executor.cancel_drain(operation)
            if move is not None:
                self._state.turn.log(
                    Level.INFO, "move given up", cluster=move.cluster, machine=move.new, old=list(move.old)
                )

    # ------------------------------------------------------------------------------------------------------------ money

    def _costs(self, old: tuple[str, ...], new: Record | None) -> tuple[float, float]:
        """Dollars an hour before and after, interruptions expected (`docs/engine.md`, P36)."""
        before = risk = 0.0
        for key in old:
            record, report = self._state.fleet.machines.get(key), self._placement.reports.on(key)
            dollars = 0.0 if report is None else report.interruption_dollars
            risk += dollars
            if record is not None:
                before += record.shape.price + _expected(record.shape.probability, dollars)
        if new is None:
            return before, 0.0
        return before, (0.0 if _is_paid_for(new) else new.shape.price) + _expected(new.shape.probability, risk)

    def _least_left(self, old: tuple[str, ...], new: Record | None) -> float:
        """How far a move may use up evictions. A change of market waits for none (`docs/engine.md`, P39): onto what
        lies idle and is paid for it borrows from what will be earned, as much as may be saved up; from what is not
        interrupted to what is it takes only what is left, for those pods have agreed to be interrupted."""
        if new is None:
            return -math.inf
        if _is_paid_for(new):
            return -float(self._state.config.eviction_most)
        records = (self._state.fleet.machines.get(key) for key in old)
        firm = all(each is None or each.shape.probability == 0 for each in records)
        return 0.0 if new.shape.probability > 0 and firm else -math.inf

    def _pods(self, key: str) -> int:
        report = self._placement.reports.on(key)
        return max(1, dict(() if report is None else report.used).get("pods", 0))

    def _prints(self, key: str) -> tuple[str, ...]:
        report = self._placement.reports.on(key)
        return () if report is None else report.profiles


def _is_paid_for(machine: Record) -> bool:
    return machine.state == IDLE and machine.shape.capacity_type in _OWNED


def _expected(probability: float, dollars: float) -> float:
    return probability * dollars if probability else 0.0


def _price(record: Record) -> str:
    return f"${record.shape.price:.3f}/h"
