"""Until when machines under way are counted on, for clusters that report placement (`docs/engine.md`, P46).

A machine that is bought, bound or opened again serves on paper until its instant; then its cluster must have seen it.
One that was Configured before this process looked has as long as one that became so when it began: half a million of
those are not worth a row each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bigfleet.engine.policy import SECOND
from bigfleet.model.machine import MachineState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bigfleet.shard.contract.config import ShardConfig

REOPENED_FOR = 60 * SECOND


class Deadlines:
    """Machine → the instant; nothing is kept where no cluster can report placement."""

    __slots__ = ("_config", "_ready_by", "_until", "born")

    def __init__(self, config: ShardConfig) -> None:
        self._config = config
        # Of machines under way, until they are in another state; and of nodes, until the instant has passed.
        self._until: dict[str, int] = {}
        self._ready_by: dict[str, int] = {}
        # When the first event came.
        self.born = 0

    @property
    def kept(self) -> bool:
        return self._config.placement

    @property
    def late_after(self) -> int:
        """Who takes longer to be created, configured or drained of nothing is late: half a boot, and one more."""
        return 3 * self._config.boot_time // 2

    def moved(self, machine: str, to: MachineState, now: int, *, empty: bool = False) -> None:
        """The machine is in this state from now on; its node is `empty` when it begins to drain, or may not be."""
        if not self.kept:
            return
        config = self._config
        self.forget(machine)
        if to == MachineState.CREATING:
            self._until[machine] = now + config.create_timeout
        elif to == MachineState.CONFIGURING:
            self._until[machine] = now + config.bootstrap_timeout + config.configure_timeout
        elif to == MachineState.CONFIGURED:
            self._ready_by[machine] = now + config.ready_timeout
        elif to == MachineState.DRAINING:
            whole = config.reclaim_grace + config.drain_timeout
            self._until[machine] = now + (min(whole, self.late_after) if empty else whole)

    def reopened(self, machine: str, now: int) -> None:
        """Its node takes pods again; so long nobody needs to have seen it."""
        if self.kept:
            self._ready_by[machine] = now + REOPENED_FOR

    def end(self, machine: str, now: int) -> None:
        """A machine under way is not counted on any more."""
        self._until[machine] = now

    def forget(self, machine: str) -> None:
        self._until.pop(machine, None)
        self._ready_by.pop(machine, None)

    def of(self, machines: Iterable[tuple[str, int]]) -> list[int] | None:
        """For (machine, state) each, 0 where there is none; None where nobody asks."""
        if not self.kept:
            return None
        before = self.born + self._config.ready_timeout
        return [
            self._ready_by.get(machine, before) if state == MachineState.CONFIGURED else self._until.get(machine, 0)
            for machine, state in machines
        ]

    def until(self, machine: str) -> int:
        """The instant; 0 where none is kept."""
        return self._until.get(machine, 0) or self._ready_by.get(machine, 0)

    def is_awaited(self, machine: str, now: int) -> bool:
        """Whether a machine under way is counted on."""
        return now < self._until.get(machine, 0)

    def configured_at(self, machine: str) -> int:
        """Since when a machine has been Configured, if not for long."""
        return self._ready_by.get(machine, self.born + self._config.ready_timeout) - self._config.ready_timeout

    def passed(self, machine: str, state: MachineState, now: int) -> bool:
        """Whether a node had to be ready before."""
        return state == MachineState.CONFIGURED and 0 < self._ready_by.get(machine, 0) <= now

    def prune(self, now: int) -> None:
        """An instant that has passed has been told."""
        if self._ready_by and now > self.born + self._config.ready_timeout:
            self._ready_by = {machine: until for machine, until in self._ready_by.items() if until > now}
