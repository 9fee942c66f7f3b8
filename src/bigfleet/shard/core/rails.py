"""The switches people hold: kill switch and dry run, changed at run time and remembered in the journal.

There are two sets of them, the admin's and the coordinator's, and neither undoes the other: the stricter holds. With
each is kept who set it, why and when. A flag at start and a switch in the journal both count: a shard that was paused
stays paused until someone says otherwise. Of the rails that are no switches, what the reclaim cap does is told here.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import msgspec

from bigfleet.engine.policy import SECOND
from bigfleet.shard.contract.events import JournalState, RailsSet, Table
from bigfleet.shard.contract.outcomes import Level
from bigfleet.shard.core.state.state import ShardState

ADMIN = "switches"
COORDINATOR = "coordinator"
CAPPED = "bigfleet_shard_reclaims_capped_total"


@dataclass(frozen=True, slots=True)
class Switches:
    """What one of the two holders set; all off with nobody's name when nothing was ever set."""

    paused: bool = False
    dry_run: bool = False
    who: str = ""
    reason: str = ""
    at: int = 0

    @property
    def strictness(self) -> int:
        return 2 * self.paused + self.dry_run


class Rails:
    """Whether the shard may act."""

    def __init__(self, state: ShardState, boot: JournalState) -> None:
        self._state = state
        config = state.config
        self._held = {holder: _read(boot.rows.get((Table.RAILS, holder), "{}")) for holder in (ADMIN, COORDINATOR)}
        mine = self._held[ADMIN]
        flagged = replace(mine, paused=mine.paused or config.actuation_paused, dry_run=mine.dry_run or config.dry_run)
        if flagged != mine:
            flagged = replace(flagged, who="the command line", reason="set at start", at=0)
        self._held[ADMIN] = flagged
        state.halted = self.paused or self.dry_run

    @property
    def paused(self) -> bool:
        return any(each.paused for each in self._held.values())

    @property
    def dry_run(self) -> bool:
        return any(each.dry_run for each in self._held.values())

    @property
    def in_force(self) -> Switches:
        """The stricter of the two; the admin's when they say the same."""
        mine, theirs = self._held[ADMIN], self._held[COORDINATOR]
        return theirs if theirs.strictness > mine.strictness else mine

    def set(self, event: RailsSet) -> bool:
        """Set what the event names of its holder's switches; returns whether the shard is held otherwise than before.

        Nobody is told twice: what a coordinator repeats with every report changes nothing.
        """
        holder = COORDINATOR if event.from_coordinator else ADMIN
        known = self._held[holder]
        paused = known.paused if event.paused is None else event.paused
        dry_run = known.dry_run if event.dry_run is None else event.dry_run
        if (paused, dry_run) == (known.paused, known.dry_run) and (event.who, event.reason) in (
            (known.who, known.reason),
            ("", ""),
        ):
            return False
        before = (self.paused, self.dry_run)
        self._held[holder] = Switches(paused, dry_run, event.who, event.reason, self._state.now)
        self._state.halted = self.paused or self.dry_run
        self._state.turn.write(Table.RAILS, holder, msgspec.json.encode(asdict(self._held[holder])).decode())
        self._state.turn.log(
            Level.WARNING,
            "rails changed",
            who=event.who,
            by="coordinator" if event.from_coordinator else "admin",
            reason=event.reason,
            paused=self.paused,
            dry_run=self.dry_run,
        )
        self._state.ask_for_cycle()
        return (self.paused, self.dry_run) != before


class CapEpisode:
    """The reclaim cap as people hear of it: once when it begins to hold machines back, once when it no longer does.

    A large withdrawal takes hours under the cap, and a line in each of its cycles would bury everything else. The
    metric counts every cycle.
    """

    def __init__(self, state: ShardState) -> None:
        self._state = state
        # Since when reclaims are put off, in how many steps, and how many at most in one of them.
        self._since = self._steps = self._most = 0

    def decided(self, capped: int) -> None:
        """A step put off so many."""
        turn, now = self._state.turn, self._state.now
        if capped:
            turn.count(CAPPED, amount=capped)
            if not self._steps:
                self._since = now
                turn.log(
                    Level.WARNING,
                    "reclaim blast-radius cap engaged; the rest waits for later cycles",
                    deferred_reclaims=capped,
                    cap_fraction=self._state.config.reclaim_cap_fraction,
                )
            self._steps, self._most = self._steps + 1, max(self._most, capped)
        elif self._steps:
            turn.log(
                Level.INFO,
                "reclaim blast-radius cap no longer engaged",
                deferred_reclaims=self._most,
                cycles=self._steps,
                seconds=(now - self._since) // SECOND,
            )
            self._steps = self._most = 0


def _read(text: str) -> Switches:
    """A row of the journal; one that cannot be read counts for nothing."""
    try:
        found: Any = msgspec.json.decode(text)
        return Switches(
            found.get("paused") is True,
            found.get("dry_run") is True,
            str(found.get("who", "")),
            str(found.get("reason", "")),
            int(found.get("at", 0)),
        )
    except (ValueError, TypeError, AttributeError):
        return Switches()
