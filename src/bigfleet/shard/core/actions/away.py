"""Providers nobody can reach: their Lists have failed for a while, and calls do not get through either.

What was never sent to such a provider is given up and its free machines rest, so that the next best is bought
elsewhere in the next cycle. What may have been applied is waited for, or it would be bought twice; what is bound stays
as it is. The first answer of any kind ends it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bigfleet.engine.policy import SECOND
from bigfleet.shard.contract.outcomes import Level, Outcome
from bigfleet.shard.core.actions import unasked
from bigfleet.shard.core.state.enum_aliases import CONFIGURE, CREATE
from bigfleet.shard.core.state.operations import Operation
from bigfleet.shard.core.state.state import ShardState

# A provider that restarts is back before that.
PATIENCE = 30 * SECOND
LISTS = 2


@dataclass(slots=True)
class Silence:
    """What failed since a provider was heard last."""

    since: int
    lists: int = 0
    calls: int = 0


class Away:
    """`back(operation, outcome, detail)` puts its machine where it was."""

    def __init__(
        self,
        state: ShardState,
        stopped: Callable[[str], bool],
        back: Callable[[Operation, Outcome, str], None],
    ) -> None:
        self._state = state
        self._stopped = stopped
        self._back = back
        self._silences: dict[str, Silence] = {}
        # Provider → since when nothing was heard of it.
        self.since: dict[str, int] = {}

    def heard(self, provider: str) -> None:
        """An answer of whatever kind."""
        if not self._silences:
            return
        self._silences.pop(provider, None)
        if self.since.pop(provider, None) is not None:
            self._state.turn.log(Level.INFO, "a provider that was away is back", provider=provider)
            if not self._stopped(provider):
                unasked.let_go(self._state, provider)

    def told(self) -> dict[str, str]:
        """Whoever is away, in words."""
        return {
            provider: f"it cannot be reached, nothing was heard of it for {(self._state.now - since) // SECOND} s; "
            "what is free elsewhere is bought instead, until it answers"
            for provider, since in sorted(self.since.items())
        }

    def list_failed(self, provider: str) -> None:
        self._silence(provider).lists += 1
        self._consider(provider)

    def call_failed(self, provider: str) -> None:
        """A call that nobody answered."""
        self._silence(provider).calls += 1
        self._consider(provider)

    def _silence(self, provider: str) -> Silence:
        return self._silences.setdefault(provider, Silence(self._state.now))

    def _consider(self, provider: str) -> None:
        state, silence = self._state, self._silences[provider]
        patience = max(PATIENCE, 2 * state.config.reconcile_interval)
        if silence.lists < LISTS or not silence.calls or state.now - silence.since < patience:
            return
        begins = provider not in self.since
        given_up = [op for op in state.operations if op.machine.provider == provider and self._in_vain(op)]
        for operation in given_up:
            detail = f"{operation.call}: provider {provider} is away: {operation.error or 'nothing was sent'}"
            self._back(operation, Outcome.PROVIDER_ERROR, detail)
        if begins:
            self.since[provider] = silence.since
            state.turn.log(
                Level.WARNING,
                "a provider is away; the next best is bought elsewhere",
                provider=provider,
                silent_for=f"{(state.now - silence.since) // SECOND}s",
            )
        if begins or given_up:
            unasked.hold(state, provider)

    def _in_vain(self, operation: Operation) -> bool:
        return operation.call in (CREATE, CONFIGURE) and operation.never_sent
