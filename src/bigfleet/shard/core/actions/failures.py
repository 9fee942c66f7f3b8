"""Machines that are Failed by the shard's own verdict, and when the provider's word brings them back.

A provider that still works on the machine says nothing new. A stable state does, unless the machine was fenced or could
not be drained: then the state it already had counts only after a hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from bigfleet.engine.policy import MINUTE, SECOND
from bigfleet.model.machine import STABLE, MachineState
from bigfleet.shard.core.state.backoff import Rests, delay

_LONGEST_HOLD = 60 * MINUTE
_FIRST_LOOK = 5 * SECOND
_LONGEST_LOOK = 5 * MINUTE


@dataclass(slots=True)
class LocalFailure:
    """`origin` is the provider's state before the failed operation; it proves nothing before `until`."""

    origin: MachineState
    until: int
    looks: int = 0


class LocalFailures:
    """Verdicts of this shard that the provider has not confirmed."""

    def __init__(self, stuck_hold: int) -> None:
        self._failures: dict[str, LocalFailure] = {}
        self._stuck: Rests[str] = Rests(stuck_hold, max(stuck_hold, _LONGEST_HOLD))

    def __len__(self) -> int:
        return len(self._failures)

    def __contains__(self, machine: str) -> bool:
        return machine in self._failures

    def note(self, machine: str, origin: MachineState, now: int, *, stuck: bool) -> int:
        """Remember a verdict; returns until when it stands against an unchanged provider state."""
        until = self._stuck.failed(machine, now) if stuck else 0
        self._failures[machine] = LocalFailure(origin, until)
        return until

    def recovers(self, machine: str, seen: MachineState, now: int) -> bool:
        """Whether seeing this state at the provider ends the verdict."""
        failure = self._failures[machine]
        return seen in STABLE and (now >= failure.until or seen != failure.origin)

    def look_again_at(self, machine: str, now: int) -> int:
        """When to ask the provider next, ever less often."""
        failure = self._failures[machine]
        failure.looks += 1
        return max(now + delay(_FIRST_LOOK, _LONGEST_LOOK, failure.looks, machine), failure.until)

    def forget(self, machine: str) -> None:
        self._failures.pop(machine, None)

    def settled(self, machine: str) -> None:
        """An action on the machine succeeded: earlier trouble no longer counts."""
        self._failures.pop(machine, None)
        self._stuck.succeeded(machine)

    def prune(self, now: int) -> None:
        """Forget how often machines got stuck that have long been left alone."""
        self._stuck.prune(now)
