"""How operations end: called off, failed or done; what rests afterwards, and who hears of it.

The only place where an operation is finished. Why it ends is judged elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable

from bigfleet.model.machine import PASSAGES
from bigfleet.shard.contract.events import ListedMachine, Table
from bigfleet.shard.contract.outcomes import Outcome
from bigfleet.shard.core.actions.call_queue import TIMER
from bigfleet.shard.core.machines.failures import LocalFailures
from bigfleet.shard.core.machines.last_errors import error_during, said
from bigfleet.shard.core.machines.lifecycle import Lifecycle
from bigfleet.shard.core.machines.rereads import Rereads
from bigfleet.shard.core.state.backoff import kind_of
from bigfleet.shard.core.state.enum_aliases import CREATE, DONE, FAILED
from bigfleet.shard.core.state.operations import Operation
from bigfleet.shard.core.state.state import ShardState

Finished = Callable[[Operation, Outcome, str], None]


class Endings:
    """`let_go(op)` drops what waits for an answer to it; `finished(op, outcome, detail)` hears how each one ends."""

    def __init__(
        self,
        state: ShardState,
        lifecycle: Lifecycle,
        rereads: Rereads,
        failures: LocalFailures,
        let_go: Callable[[Operation], None],
        finished: Finished,
    ) -> None:
        self._state = state
        self._lifecycle = lifecycle
        self._rereads = rereads
        self._failures = failures
        self._let_go = let_go
        self._finished = finished

    def back(self, operation: Operation, outcome: Outcome, detail: str) -> None:
        """Called off: the machine is what it was."""
        record = operation.machine
        self._lifecycle.move(record, PASSAGES[operation.call].before, f"called off: {detail}")
        if operation.ambiguous:
            self._rereads.ask(record.provider, record.id, self._state.now)
        self.finish(operation, outcome, detail)

    def without_blob(self, operation: Operation, outcome: Outcome, error: str) -> None:
        """No user data: the machine is free again, the need waits before it tries the next one."""
        need = (operation.cluster, operation.fingerprint)
        self._state.need_rests.failed(need, self._state.now, error)
        self.back(operation, outcome, f"bootstrap: {error}")

    def stuck(self, operation: Operation, error: str) -> None:
        self.fail(operation, Outcome.PROVIDER_ERROR, error, stuck=True)

    def provider_failed(self, operation: Operation, listed: ListedMachine) -> None:
        """The provider's verdict."""
        record = operation.machine
        self._lifecycle.refresh(record, listed.shape, listed.host)
        error = error_during(operation, listed)
        self._lifecycle.move(record, FAILED, error, error=error)
        # It will say so again in every List, when nobody knows the blob any more.
        record.said = said(listed)
        self.after_failure(operation, error)
        self.finish(operation, Outcome.PROVIDER_ERROR, f"{operation.call}: {error}")

    def fail(self, operation: Operation, outcome: Outcome, error: str, *, stuck: bool = False) -> None:
        """Our own verdict: Failed until the provider's word says otherwise."""
        record, now = operation.machine, self._state.now
        text = f"{operation.call}: {error}"
        self._lifecycle.move(record, FAILED, text, error=text)
        until = self._failures.note(record.key, PASSAGES[operation.call].before, now, stuck=stuck)
        self.after_failure(operation, error)
        if until:
            self._state.rest_machine(record, until)
        self._rereads.ask(record.provider, record.id, max(now, until))
        self.finish(operation, outcome, text)

    def after_failure(self, operation: Operation, error: str) -> None:
        """What a failure is remembered by: the kind's breaker if it was a purchase, the machine's rest always."""
        if operation.call == CREATE:
            self._state.breakers.failed(kind_of(operation.machine.shape), self._state.now, error)
        self._rest(operation, error)

    def undone(self, operation: Operation, detail: str) -> None:
        """The provider took back what it had begun."""
        self.after_failure(operation, detail)
        self.finish(operation, Outcome.PROVIDER_ERROR, f"{operation.call}: {detail}")

    def _rest(self, operation: Operation, why: str) -> None:
        record = operation.machine
        self._state.rest_machine(record, self._state.machine_rests.failed(record.key, self._state.now, why))

    def finish(self, operation: Operation, outcome: Outcome, detail: str) -> None:
        self._let_go(operation)
        self._state.timers.cancel(TIMER, operation.machine.key)
        self._state.operations.remove(operation)
        operation.to(DONE)
        self._state.turn.erase(Table.DRAIN if operation.is_drain else Table.INTENT, operation.journal_key)
        operation.blob = b""
        self._finished(operation, outcome, detail)
