"""What all parts of the core share: configuration, the running turn, machines, operations, sessions, rests.

A plain bundle without behaviour of its own, made once by the core.
"""

from __future__ import annotations

from bigfleet.shard.contract.config import ShardConfig
from bigfleet.shard.contract.events import JournalState
from bigfleet.shard.core.state.backoff import Kind, Rests
from bigfleet.shard.core.state.deadlines import Deadlines
from bigfleet.shard.core.state.fencing import Fencing
from bigfleet.shard.core.state.fleet import Fleet, Record
from bigfleet.shard.core.state.operations import Operations
from bigfleet.shard.core.state.sessions import Sessions
from bigfleet.shard.core.state.story import Stories
from bigfleet.shard.core.state.timers import Timers
from bigfleet.shard.core.state.turn import Turn


class ShardState:
    """The shared facts of one shard."""

    def __init__(self, config: ShardConfig, boot: JournalState) -> None:
        self.config = config
        self.turn = Turn()
        # The instant of the running turn, for all parts to read.
        self.now = 0
        self.timers = Timers()
        self.fleet = Fleet(config.providers)
        self.fencing = Fencing(config.id, boot.epoch)
        self.sessions = Sessions(self.turn, self.fencing, config.outbox_limit)
        self.operations = Operations()
        self.stories = Stories()
        self.machine_rests: Rests[str] = Rests(config.machine_backoff, config.machine_backoff_max)
        self.need_rests: Rests[tuple[str, str]] = Rests(config.bootstrap_backoff, config.bootstrap_backoff_max)
        self.breakers: Rests[Kind] = Rests(config.breaker_delay, config.breaker_delay_max)
        # Instant of the last answer a provider gave to a call on the machine: older sightings say nothing.
        self.answered: dict[str, int] = {}
        self.not_before: dict[str, int] = {}
        # Until when a machine under way is counted on (`docs/engine.md`, P46).
        self.deadlines = Deadlines(config)
        self._wants_cycle = False
        # Set by the rails: nothing may be done to a machine.
        self.halted = False

    def begin(self, now: int) -> None:
        """A new event, at this instant or at the last one if the clock went back."""
        # Clocks jump back; the core's time does not, so ages and deadlines stay ordered.
        if now > self.now:
            self.deadlines.born = self.deadlines.born or now
            self.now = now

    @property
    def wants_cycle(self) -> bool:
        """Whether something happened that a step should see soon."""
        return self._wants_cycle

    def ask_for_cycle(self) -> None:
        """What changed matters to the engine: the next step comes as soon as the configured pause allows."""
        self._wants_cycle = True

    def cycle_begins(self) -> None:
        """Everything asked for so far is in the step that begins; only the cycle says so."""
        self._wants_cycle = False

    def rest_machine(self, record: Record, until: int) -> None:
        """Nobody acquires or touches the machine before `until`."""
        self.not_before[record.key] = max(until, self.not_before.get(record.key, 0))
        self.fleet.touch(record)

    def resting(self, machine: str) -> bool:
        return self.now < self.not_before.get(machine, 0)
