"""The switches people hold: kill switch and dry run, changed at run time and remembered in the journal.

A flag at start and a switch in the journal both count: a shard that was paused stays paused until someone says
otherwise.
"""

from __future__ import annotations

import json

from bigfleet.shard.contract.events import JournalState, RailsSet, Table
from bigfleet.shard.contract.outcomes import Level
from bigfleet.shard.core.state.state import ShardState

ROW = "switches"


class Rails:
    """Whether the shard may act."""

    def __init__(self, state: ShardState, boot: JournalState) -> None:
        self._state = state
        stored = _read(boot.rows.get((Table.RAILS, ROW), "{}"))
        self.paused = state.config.actuation_paused or stored.get("paused") is True
        self.dry_run = state.config.dry_run or stored.get("dry_run") is True
        state.halted = self.paused or self.dry_run

    def set(self, event: RailsSet) -> bool:
        """Flip what the event names; returns whether anything changed."""
        before = (self.paused, self.dry_run)
        if event.paused is not None:
            self.paused = event.paused
        if event.dry_run is not None:
            self.dry_run = event.dry_run
        if (self.paused, self.dry_run) == before:
            return False
        self._state.halted = self.paused or self.dry_run
        row = {"paused": self.paused, "dry_run": self.dry_run}
        self._state.turn.write(Table.RAILS, ROW, json.dumps(row, sort_keys=True))
        self._state.turn.log(Level.WARNING, "rails changed", who=event.who, paused=self.paused, dry_run=self.dry_run)
        self._state.ask_for_cycle()
        return True


def _read(text: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
