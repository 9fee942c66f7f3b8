"""Moves: machines whose pods go somewhere cheaper. The new machine is Ready before the old ones drain.

A move is journalled with the purchase it begins with, so a restart goes on where it was; with the journal lost the new
machine is an ordinary one. The engine decides what an open move does next and when it has to be given up; here is who
takes part in which, what became of it, and that neither side is moved again before the move has paid for itself.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.json import encode

from bigfleet.engine.placement import Move, RestKind
from bigfleet.shard.contract.events import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from bigfleet.shard.core.clusters.placement import Placement
    from bigfleet.shard.core.state.state import ShardState

MOVES = "bigfleet_shard_consolidation_moves_total"
SAVED = "bigfleet_shard_consolidation_saved_dollars_per_hour_total"
BEGUN, ENDED, ABORTED = "begun", "ended", "aborted"


class MoveRow(Struct):
    """A move as the journal has it: `old` are those still to go, `gone` those that went; `saving` an hour."""

    cluster: str
    old: tuple[str, ...]
    gone: tuple[str, ...]
    new: str
    started: int
    deadline: int
    ended: bool = False
    saving: float = 0.0

    @property
    def machines(self) -> tuple[str, ...]:
        return (*self.gone, *self.old, *((self.new,) if self.new else ()))


class Moves:
    """Moves that are open or ended only a moment ago, by the key of their journal row."""

    def __init__(self, state: ShardState, placement: Placement, rows: Mapping[tuple[Table, str], str]) -> None:
        self._state = state
        self._spared = placement.spared
        self._moves: dict[str, MoveRow] = {}
        self._open: dict[str, str] = {}
        self._payback = state.config.consolidate_payback
        self._window = state.config.policy().placement.move_window_ns
        for (table, key), text in rows.items():
            if table == Table.MOVE:
                self._restore(key, text)

    def __iter__(self) -> Iterator[MoveRow]:
        """The open ones."""
        return (move for _, move in sorted(self._moves.items()) if not move.ended)

    def of(self, machine: str) -> MoveRow | None:
        """The open move the machine takes part in."""
        key = self._open.get(machine)
        return None if key is None else self._moves[key]

    def begin(self, cluster: str, old: tuple[str, ...], new: str, saving: float) -> None:
        """The decision was taken and its first action begins in this turn."""
        config = self._state.config
        lasts = config.reclaim_grace + config.drain_timeout + config.drain_report_slack
        if new:
            lasts += config.create_timeout + config.bootstrap_timeout + config.configure_timeout + config.ready_timeout
        now = self._state.now
        key = old[0]
        move = self._moves[key] = MoveRow(cluster, old, (), new, now, now + lasts, saving=saving)
        self._open.update(dict.fromkeys(move.machines, key))
        self._write(key, move, lazy=False)
        self._state.turn.count(MOVES, BEGUN)

    def given_back(self, machine: str) -> None:
        """An old machine has left its cluster, as was decided."""
        key = self._open.get(machine)
        move = None if key is None else self._moves[key]
        if key is None or move is None or machine not in move.old:
            return
        move.old = tuple(each for each in move.old if each != machine)
        move.gone = (*move.gone, machine)
        del self._open[machine]
        if move.old:
            self._write(key, move)
            return
        move.ended = True
        self._settle(key, move, ENDED, f"the move is over: saves ${move.saving:.3f}/h")
        self._state.turn.count(SAVED, amount=max(0.0, move.saving))
        self._write(key, move)

    def abort(self, machine: str, why: str, *, refused: bool = False) -> MoveRow | None:
        """The move this machine takes part in is given up; None when there is none. `refused`: its cluster has no room
        for the pods and evicted none."""
        key = self._open.get(machine)
        if key is None:
            return None
        move = self._moves.pop(key)
        self._settle(key, move, ABORTED, f"the move is given up: {why}", refused=refused and not move.new)
        self._state.turn.erase(Table.MOVE, key)
        return move

    def conditions(self, known: Callable[[str], bool]) -> tuple[Move, ...]:
        """As the engine takes them: open ones, and ended ones as long as they count against the pace of moves; of
        clusters whose nodes are `known` to the step.

        After a restart the engine knows nothing of a cluster before its first roll-up and would give its moves up; in
        the step that has the roll-up it would begin them a second time if it did not know of them.
        """
        found = []
        for _, move in sorted(self._moves.items()):
            if not known(move.cluster):
                continue
            if move.gone:
                found.append(Move(move.cluster, move.gone, "", move.started, move.deadline, ended=True))
            if not move.ended:
                found.append(Move(move.cluster, move.old, move.new, move.started, move.deadline))
        return tuple(found)

    def clusters(self) -> frozenset[str]:
        """Those with a move that is open or ended only a moment ago."""
        return frozenset(move.cluster for move in self._moves.values())

    def prune(self) -> None:
        """Forget ended moves that no pace counts any more, and open ones whose cluster did not come back in time."""
        now = self._state.now
        for move in [each for each in self._moves.values() if not each.ended and now >= each.deadline]:
            self.abort(move.old[0], "it took too long")
        for key in [key for key, move in self._moves.items() if move.ended and now - move.started >= self._window]:
            del self._moves[key]
            self._state.turn.erase(Table.MOVE, key)

    def validate(self) -> None:
        parts = {machine: key for key, move in self._moves.items() if not move.ended for machine in _present(move)}
        assert parts == self._open, "moves and their machines disagree"
        assert all(move.ended or move.old for move in self._moves.values()), "an open move has nothing left to move"

    def _settle(self, key: str, move: MoveRow, outcome: str, line: str, *, refused: bool = False) -> None:
        for machine in move.machines:
            self._open.pop(machine, None)
            if refused:
                self._spared.refused(machine, move.cluster, self._state.config.refused_rest, self._payback)
            else:
                self._spared.spare(machine, RestKind.CLOSE, self._payback, unless_changed=move.cluster)
            self._state.stories.tell(machine, self._state.now, line)
        self._state.turn.count(MOVES, outcome)

    def _write(self, key: str, move: MoveRow, *, lazy: bool = True) -> None:
        self._state.turn.write(Table.MOVE, key, encode(move).decode(), lazy=lazy)

    def _restore(self, key: str, text: str) -> None:
        """A row that cannot be read is dropped: its machines are ordinary ones."""
        try:
            row = json.loads(text)
            move = MoveRow(
                cluster=str(row["cluster"]),
                old=tuple(map(str, row["old"])),
                gone=tuple(map(str, row["gone"])),
                new=str(row["new"]),
                started=int(row["started"]),
                deadline=int(row["deadline"]),
                ended=bool(row["ended"]),
                saving=float(row["saving"]),
            )
        except (ValueError, KeyError, TypeError):
            self._state.turn.erase(Table.MOVE, key)
            return
        self._moves[key] = move
        if not move.ended:
            self._open.update(dict.fromkeys(_present(move), key))


def _present(move: MoveRow) -> tuple[str, ...]:
    """Machines that still take part."""
    return (*move.old, *((move.new,) if move.new else ()))
