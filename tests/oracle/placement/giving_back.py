"""Giving back: empty nodes, nodes that never became ready, and the moves that are under way.

Written from docs/engine.md P33, P34 and P38.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bigfleet.engine.results import Reason
from tests.oracle.placement.buying import in_open_move, resting
from tests.oracle.placement.reports import is_seen
from tests.oracle.placement.worth import owned
from tests.oracle.supply import CONFIGURED, DELETING, DRAINING, FAILED, Unit

if TYPE_CHECKING:
    from bigfleet.engine.batches import Conditions
    from bigfleet.engine.placement import Move
    from bigfleet.engine.policy import Policy
    from tests.oracle.demand import Demand
    from tests.oracle.placement.worth import Worth

DRAIN, CLOSE = 1, 2
HOUR = 3_600_000_000_000
Going = tuple[Unit, Reason, bool]


def split_moves(
    machines: dict[str, Unit], demand: Demand, policy: Policy, conditions: Conditions, now: int
) -> tuple[Conditions, list[str]]:
    """The conditions with open moves only, and the first old machine of every move that cannot go on."""
    going = [move for move in conditions.moves if not move.ended]
    still: list[Move] = []
    aborted: list[str] = []
    for move in sorted(going, key=lambda move: (move.old[0].encode(), move.new.encode(), move.started)):
        if not _goes_on(move, machines, demand, policy, now):
            aborted.append(move.old[0])
        elif not any(_named(move) & _named(other) for other in still):
            still.append(move)
    return replace(conditions, moves=tuple(still)), sorted(aborted, key=str.encode)


def _named(move: Move) -> set[str]:
    return {*move.old, move.new} - {""}


def _goes_on(move: Move, machines: dict[str, Unit], demand: Demand, policy: Policy, now: int) -> bool:
    cluster = demand.clusters.get(move.cluster)
    if not policy.placement.consolidate or (move.deadline and now >= move.deadline):
        return False
    if cluster is None or not cluster.reporting or any(cluster.stranded(row) for row in cluster.rows.values()):
        return False
    for old in move.old:
        unit = machines.get(old)
        if unit is None or unit.state not in (CONFIGURED, DRAINING) or unit.cluster != move.cluster:
            return False
    if not move.new:
        return True
    new = machines.get(move.new)
    if new is None or new.state in (FAILED, DELETING, DRAINING):
        return False
    return new.state != CONFIGURED or new.cluster == move.cluster


def note_empty(machines: dict[str, Unit], demand: Demand, policy: Policy, open_moves: Conditions, now: int) -> None:
    """Begins and ends the runs an empty node's hold is measured by."""
    for unit in machines.values():
        if _lies_empty(unit, demand, policy, open_moves, now):
            unit.empty_since = now if unit.empty_since is None else unit.empty_since
        else:
            unit.empty_since = None


def _lies_empty(unit: Unit, demand: Demand, policy: Policy, open_moves: Conditions, now: int) -> bool:
    cluster, report = demand.clusters.get(unit.cluster), unit.report
    if unit.state != CONFIGURED or cluster is None or report is None:
        return False
    if not cluster.fresh(policy, now) or cluster.suspicious or cluster.mode_hold(policy, now):
        return False
    if not (report.ready and report.empty) or in_open_move(unit, open_moves):
        return False
    return report.closing or is_seen(unit, demand)


def hold_ns(unit: Unit, worth: Worth) -> int:
    placement = worth.placement
    if owned(unit):
        as_open = placement.empty_min_ns
    else:
        as_open = min(max(worth.boot_ns(unit), placement.empty_min_ns), placement.empty_max_ns)
    if unit.report is not None and unit.report.closing and placement.closed_empty_ns < as_open:
        return placement.closed_empty_ns
    return as_open


def going(
    name: str,
    machines: dict[str, Unit],
    demand: Demand,
    worth: Worth,
    policy: Policy,
    moves: Conditions,
    now: int,
    doubted: bool,
) -> list[Going]:
    """What a reporting cluster gives back, in the order it goes, before the cap."""
    cluster = demand.clusters[name]
    if not cluster.fresh(policy, now) or cluster.suspicious or cluster.mode_hold(policy, now):
        return []
    mine = [u for _, u in sorted(machines.items(), key=lambda i: i[0].encode()) if u.cluster == name]
    mine = [u for u in mine if u.state == CONFIGURED and u.preemptor is None and u.taker is None and not u.reopened]
    dead = [
        unit
        for unit in mine
        if unit.ready_since is None and unit.deadline and now >= unit.deadline and not in_open_move(unit, moves)
    ]
    empty = [
        unit
        for unit in mine
        if not doubted
        and unit.empty_since is not None
        and now - unit.empty_since >= hold_ns(unit, worth)
        and not resting(unit, moves, DRAIN, now)
    ]
    empty.sort(key=lambda unit: (-unit.shape.price, unit.id.encode()))
    old = [unit for unit in mine if _gives_way(unit, machines, demand, moves)]
    return [
        *((unit, Reason.NEVER_READY, False) for unit in dead),
        *((unit, Reason.EXCESS, True) for unit in empty),
        *((unit, Reason.MOVE, True) for unit in old),
    ]


def _gives_way(unit: Unit, machines: dict[str, Unit], demand: Demand, moves: Conditions) -> bool:
    """An old machine of a move whose new one the cluster has seen."""
    if unit.report is not None and unit.report.pinned:
        return False
    return any(unit.id in move.old and (not move.new or is_seen(machines[move.new], demand)) for move in moves.moves)
