"""What follows from calls that say more about the provider than about the machine: stock-outs, limits and fences.

Tells the executor how to end or delay the operations concerned; keeps the breakers and the stand-offs. A refusal that
concerns only its machine is the executor's.
"""

from __future__ import annotations

from collections.abc import Callable

from bigfleet.engine.policy import SECOND
from bigfleet.shard.contract.events import Failure
from bigfleet.shard.contract.outcomes import Level, Outcome
from bigfleet.shard.core.actions import unasked
from bigfleet.shard.core.actions.call_queue import Calls
from bigfleet.shard.core.actions.standoffs import Standoffs
from bigfleet.shard.core.actions.stockouts import Meaning, StockOuts
from bigfleet.shard.core.machines.rereads import Rereads
from bigfleet.shard.core.state.backoff import Kind, kind_of
from bigfleet.shard.core.state.enum_aliases import CREATE
from bigfleet.shard.core.state.operations import Operation, Stage
from bigfleet.shard.core.state.state import ShardState

Ending = Callable[[Operation, Outcome, str], None]


class Refusals:
    """`back(operation, outcome, detail)` puts a machine where it was before; `untouched` asks whether that is easy."""

    def __init__(
        self,
        state: ShardState,
        calls: Calls,
        rereads: Rereads,
        back: Ending,
        call_off: Ending,
    ) -> None:
        self._state = state
        self._calls = calls
        self._rereads = rereads
        self._back = back
        self._call_off = call_off
        self.stockouts = StockOuts()
        self.standoffs = Standoffs()

    # ------------------------------------------------------------------------------------------------------- stock-outs

    def ends(self, operation: Operation, failure: Failure, error: str) -> bool:
        """Whether the refusal ended the operation; the executor goes on with one it did not end."""
        record = operation.machine
        if failure == Failure.FENCED:
            self._fenced(operation, error)
            return True
        if failure == Failure.THROTTLED or (failure == Failure.EXHAUSTED and operation.call != CREATE):
            # Nothing is bought by it, so nothing can be sold out.
            self.stockouts.refused_other(record.provider, operation.sent, self._state.now)
            self._calls.slow_down(operation)
            self.limits_calls(record.provider, error)
            return False
        if operation.call != CREATE:
            return False
        if failure == Failure.SOLD_OUT:
            self._sold_out(kind_of(record.shape), error, operation, said=True)
            return True
        if failure not in (Failure.EXHAUSTED, Failure.BUSY):
            return False
        match self.stockouts.refused(record.shape, record.key, operation.sent, self._state.now):
            case Meaning.SOLD_OUT:
                self._sold_out(kind_of(record.shape), error, operation)
                return True
            case Meaning.THROTTLED:
                self._calls.slow_down(operation)
                self.limits_calls(record.provider, error)
            case Meaning.UNPROVED:
                self._calls.slow_down(operation)
            case Meaning.PROBE:
                self._rereads.ask(record.provider, record.id, self._state.now)
            case Meaning.UNCLEAR:
                pass
        return False

    def taken(self, operation: Operation) -> None:
        """The provider took a call."""
        record, now = operation.machine, self._state.now
        self._calls.taken(operation)
        if self.stockouts.taken(record.shape, operation.sent, now, purchase=operation.call == CREATE):
            self.limits_calls(record.provider, "purchases are refused and taken by turns")

    def limits_calls(self, provider: str, error: str) -> None:
        """It is proved that a provider limits calls: for a while that is what its refusals mean."""
        state = self._state
        begins = not self.stockouts.limited(provider, state.now)
        for kind in self.stockouts.limits(provider, state.now):
            state.breakers.succeeded(kind)
            state.ask_for_cycle()
        if begins:
            state.turn.log(
                Level.WARNING, "a provider limits calls; it is asked more slowly", provider=provider, err=error
            )

    def answered(self, provider: str) -> None:
        """The provider answered a List or a Get: it is there, whatever it says to purchases."""
        kind = self.stockouts.worked(provider, self._state.now)
        if kind is not None:
            waiting = [op for op in self._state.operations if op.call == CREATE and kind_of(op.machine.shape) == kind]
            refused = [op for op in waiting if _was_refused(op)]
            if refused:
                self._calls.answers(provider)
                self._sold_out(kind, refused[0].error, refused[0])

    def _sold_out(self, kind: Kind, error: str, first: Operation, *, said: bool = False) -> None:
        """No purchase of the kind for a while; those that wait to be tried again are given up, for the next best."""
        state = self._state
        self.stockouts.sold_out(first.machine.shape, state.now, said=said)
        until = state.breakers.failed(kind, state.now, error)
        state.turn.log(
            Level.WARNING,
            "sold out; the next best is bought meanwhile",
            provider=kind[0],
            instance_type=kind[1],
            zone=kind[2],
            tried_again_in=f"{max(0, until - state.now) // SECOND}s",
            err=error,
        )
        for operation in list(state.operations):
            mine = operation.call == CREATE and kind_of(operation.machine.shape) == kind
            if operation is first or (mine and _was_refused(operation)):
                self._back(operation, Outcome.SOLD_OUT, f"{CREATE}: sold out: {operation.error or error}")

    # ----------------------------------------------------------------------------------------------------------- fences

    def _fenced(self, operation: Operation, error: str) -> None:
        state, record = self._state, operation.machine
        provider = record.provider
        state.turn.log(
            Level.ERROR,
            "provider fenced this shard's mutation; another process acts for this shard",
            kind=operation.kind.name.capitalize(),
            machine=record.key,
            cluster=operation.cluster,
            epoch=state.fencing.epoch,
            err=error,
        )
        state.rest_machine(record, state.machine_rests.failed(record.key, state.now, error))
        self._rereads.ask(provider, record.id, state.now)
        self._back(operation, Outcome.FENCED, f"{operation.call}: {error}")
        if self.standoffs.refused(provider, record.key, state.now) and not self.standoffs.stopped(provider):
            self._stop(provider, error)

    def _stop(self, provider: str, error: str) -> None:
        state = self._state
        why = (
            f"provider {provider} refuses epoch {state.fencing.epoch} of shard {state.config.id} ({error}): another "
            "process acts for this shard, or its data directory was lost; stop the other one and run "
            "`bigfleetctl rails --resume`, or start this one with a higher --min-epoch"
        )
        self.standoffs.begin(provider, why)
        state.turn.log(Level.ERROR, "stopped acting on a provider that fences this shard", provider=provider, err=why)
        for operation in list(state.operations):
            if operation.machine.provider == provider:
                self._call_off(operation, Outcome.FENCED, "the provider fences this shard")
        unasked.hold(state, provider)

    def resolve(self) -> None:
        """A person says that this process is the one to act."""
        state = self._state
        for provider in self.standoffs.resolve():
            state.turn.log(Level.WARNING, "acting again on a provider that fenced this shard", provider=provider)
            unasked.let_go(state, provider)
        state.ask_for_cycle()


def _was_refused(operation: Operation) -> bool:
    """Whether it waits to be asked again."""
    return operation.stage == Stage.RETRYING or (operation.stage == Stage.QUEUED and operation.attempts > 0)
