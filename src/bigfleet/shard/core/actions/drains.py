"""Drains before the provider is asked: the operator cordons and evicts first, as far as it can and is there.

Three kinds of peer: one that reports its drains is waited for until the grace is over; one that does not gets the
instruction while the provider drains at once with the same grace, as the base contract has it; one that is away is
waited for up to the grace. A cluster that is gone for good is not waited for. Drains are journalled, so a restarted
shard goes on where it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from msgspec import Struct
from msgspec.json import encode

from bigfleet.engine.policy import SECOND
from bigfleet.engine.results import ActionKind, Reason
from bigfleet.model.names import DRAIN_REPORTS, RECLAIM_CANCEL
from bigfleet.model.session import DrainOutcome
from bigfleet.shard.contract.events import DrainReported, Table
from bigfleet.shard.contract.frames import ReclaimCancel, ReclaimInstruction
from bigfleet.shard.contract.outcomes import Level
from bigfleet.shard.core.actions.call_queue import TIMER
from bigfleet.shard.core.state.enum_aliases import EVICTING, RECLAIM
from bigfleet.shard.core.state.ids import IdSource
from bigfleet.shard.core.state.operations import FORGOTTEN, Operation, Stage, grace_left
from bigfleet.shard.core.state.sessions import Session
from bigfleet.shard.core.state.state import ShardState


@dataclass(slots=True)
class JournalledDrain:
    """A drain begun by an earlier process, until its machine is seen again."""

    machine: str
    kind: ActionKind
    cluster: str
    instruction_id: str
    grace_seconds: int
    grace_ends: int
    preemptor_priority: int
    reason: str
    cycle: int
    voluntary: bool = False
    evict_by: int = 0
    evicted: bool = False
    refused: bool = False


class Row(Struct):
    """A drain as the journal has it."""

    kind: int
    machine: str
    cluster: str
    instruction: str
    grace: int
    ends: int
    priority: int
    reason: str
    cycle: int
    voluntary: bool = False
    evict_by: int = 0


class Drains:
    """The operator's part of a drain.

    `proceed(op)` asks the provider; `stuck(op, error)` gives up because pods remain; `undone(op)` is a drain the
    operator took back, `refused(op)` one that it would not begin.
    """

    def __init__(
        self,
        state: ShardState,
        ids: IdSource,
        rows: Mapping[tuple[Table, str], str],
        proceed: Callable[[Operation], None],
        stuck: Callable[[Operation, str], None],
        undone: Callable[[Operation], None],
        refused: Callable[[Operation, str], None],
    ) -> None:
        self._state = state
        self._ids = ids
        self._proceed = proceed
        self._stuck = stuck
        self._undone = undone
        self._refused = refused
        self.journalled: dict[str, JournalledDrain] = {}
        for (table, key), text in rows.items():
            drain = _parse(key, text) if table == Table.DRAIN else None
            if drain is not None:
                self.journalled[key] = drain

    def begin(self, operation: Operation) -> None:
        """Start, or start again after a restart, with what is left of the grace."""
        operation.instruction_id = operation.instruction_id or self._ids.next()
        operation.grace_ends = operation.grace_ends or self._state.now + operation.grace_seconds * SECOND
        self._journal(operation)
        if operation.reason == FORGOTTEN:
            self._proceed(operation)
            return
        session = self._state.sessions.of(operation.cluster)
        if session is not None:
            self._through(session, operation)
            return
        known = self._state.sessions.last_capabilities(operation.cluster)
        if known is not None and DRAIN_REPORTS not in known:
            self._fall_back(operation)
        else:
            self._wait_for_operator(operation)

    def connected(self, session: Session) -> None:
        """The cluster's operator is here (again): tell it of everything that drains there."""
        for operation in self._state.operations.of_cluster(session.cluster):
            if operation.stage in (Stage.AWAY, EVICTING):
                self._through(session, operation)
            elif operation.is_drain:
                # The provider is at it already; whatever the operator still does must not end in uncordoning the node.
                self._instruct(session, operation)
        for drain in self.journalled.values():
            if drain.cluster == session.cluster and session.can(DRAIN_REPORTS) and not drain.evicted:
                self._send(session, drain)

    def disconnected(self, cluster: str) -> None:
        for operation in self._state.operations.of_cluster(cluster):
            if operation.stage == EVICTING:
                self._wait_for_operator(operation)

    def reported(self, event: DrainReported) -> None:
        session = self._state.sessions.get(event.session)
        if session is None:
            return
        operation = self._state.operations.on(event.machine)
        if operation is None or not operation.is_drain:
            self._note_journalled(session.cluster, event)
        elif (
            operation.stage == EVICTING
            and operation.cluster == session.cluster
            and operation.instruction_id == event.instruction_id
        ):
            self._conclude(operation, event.outcome, event.error)

    def disregard(self, cluster: str, reason: str) -> None:
        """Drains of an earlier process whose machines were not seen yet, and whose reason does not hold any more."""
        for key, drain in list(self.journalled.items()):
            if (drain.cluster, drain.reason) == (cluster, reason):
                del self.journalled[key]
                self._state.turn.erase(Table.DRAIN, key)

    def overdue(self, operation: Operation) -> None:
        """The grace is over."""
        if operation.stage == Stage.AWAY:
            self._fall_back(operation)
        else:
            self._conclude(operation, DrainOutcome.GRACE_EXPIRED, "")

    def cancellable(self, operation: Operation) -> bool:
        """Whether returning demand may take this drain back."""
        if operation.stage != EVICTING or operation.kind != RECLAIM:
            return False
        session = self._state.sessions.of(operation.cluster)
        return session is not None and session.can(RECLAIM_CANCEL)

    def tell_cancelled(self, operation: Operation) -> None:
        """The operator need not go on; one that is away gives up by itself when nobody claims the drain."""
        session = self._state.sessions.of(operation.cluster)
        if session is not None and session.can(RECLAIM_CANCEL):
            session.outbox.cancel(operation.machine.key, ReclaimCancel(operation.instruction_id))
            self._state.sessions.wake(session)

    def _through(self, session: Session, operation: Operation) -> None:
        self._instruct(session, operation)
        if not session.can(DRAIN_REPORTS):
            self._proceed(operation)
            return
        if operation.stage != EVICTING:
            operation.to(EVICTING)
        due = operation.grace_ends + self._state.config.drain_report_slack
        self._state.timers.arm(TIMER, operation.machine.key, max(due, self._state.now))

    def _wait_for_operator(self, operation: Operation) -> None:
        operation.to(Stage.AWAY)
        self._state.timers.arm(TIMER, operation.machine.key, max(operation.grace_ends, self._state.now))

    def _fall_back(self, operation: Operation) -> None:
        known = self._state.sessions.last_capabilities(operation.cluster)
        reports = known is None or DRAIN_REPORTS in known
        if reports or operation.kind == RECLAIM:
            self._state.turn.log(
                Level.WARNING,
                "reclaim fallback: no operator session; draining at the provider directly",
                machine=operation.machine.key,
                cluster=operation.cluster,
            )
        self._proceed(operation)

    def _conclude(self, operation: Operation, outcome: DrainOutcome, error: str) -> None:
        if outcome == DrainOutcome.DRAINED:
            self._proceed(operation)
        elif outcome == DrainOutcome.CANCELLED:
            self._undone(operation)
        elif outcome == DrainOutcome.REFUSED and operation.voluntary:
            self._refused(operation, error)
        elif outcome == DrainOutcome.GRACE_EXPIRED and self._state.config.drain_after_grace:
            self._proceed(operation)
        else:
            cause = "pods remain after the grace" if outcome == DrainOutcome.GRACE_EXPIRED else "the cluster refused"
            self._stuck(operation, f"{cause}{f': {error}' if error else ''}")

    def _note_journalled(self, cluster: str, event: DrainReported) -> None:
        for drain in self.journalled.values():
            if (drain.cluster, drain.machine, drain.instruction_id) == (cluster, event.machine, event.instruction_id):
                drain.evicted = event.outcome == DrainOutcome.DRAINED
                drain.refused = event.outcome == DrainOutcome.REFUSED and drain.voluntary

    def _instruct(self, session: Session, drain: Operation) -> None:
        self._ask(session, drain, drain.machine.key)

    def _send(self, session: Session, drain: JournalledDrain) -> None:
        self._ask(session, drain, drain.machine)

    def _ask(self, session: Session, drain: Operation | JournalledDrain, machine: str) -> None:
        left = grace_left(drain.grace_ends, self._state.now)
        # Only moves make pods leave; whatever else is voluntary goes because nothing runs there.
        empty = drain.voluntary and drain.reason != Reason.MOVE
        session.outbox.reclaim(
            machine,
            ReclaimInstruction(
                drain.instruction_id,
                (machine,),
                left,
                drain.preemptor_priority,
                drain.voluntary,
                empty,
                grace_left(drain.evict_by, self._state.now) if drain.evict_by else 0,
            ),
        )
        self._state.sessions.wake(session)

    def _journal(self, operation: Operation) -> None:
        row = Row(
            int(operation.kind),
            operation.machine.key,
            operation.cluster,
            operation.instruction_id,
            operation.grace_seconds,
            operation.grace_ends,
            operation.preemptor_priority,
            operation.reason,
            operation.cycle,
            operation.voluntary,
            operation.evict_by,
        )
        self._state.turn.write(Table.DRAIN, operation.journal_key, encode(row).decode())


def _parse(key: str, text: str) -> JournalledDrain | None:
    """A row that cannot be read is dropped: the engine decides about the machine anew."""
    try:
        row = json.loads(text)
        return JournalledDrain(
            machine=str(row["machine"]),
            kind=ActionKind(row["kind"]),
            cluster=str(row["cluster"]),
            instruction_id=str(row["instruction"]),
            grace_seconds=int(row["grace"]),
            grace_ends=int(row["ends"]),
            preemptor_priority=int(row["priority"]),
            reason=str(row["reason"]),
            cycle=int(row["cycle"]),
            voluntary=bool(row.get("voluntary", False)),
            evict_by=int(row.get("evict_by", 0)),
        )
    except (ValueError, KeyError, TypeError):
        return None
