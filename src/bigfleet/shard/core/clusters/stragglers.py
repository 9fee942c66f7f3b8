"""Machines late for a gang that is otherwise there: no step counts on them, so that one is bought in place of each.

A gang waits for its last machine, and one that takes minutes longer than its likes seldom comes soon after. Late is who
has been Creating or Configuring for one boot more than is usual when half of the machines of its gang have been
Configured for half a boot: where all take longer, nobody is late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bigfleet.shard.core.state.enum_aliases import CONFIGURED, CONFIGURING, CREATING

if TYPE_CHECKING:
    from bigfleet.shard.core.state.fleet import Record
    from bigfleet.shard.core.state.state import ShardState

_UNDER_WAY = frozenset({CREATING, CONFIGURING})


def give_up_stragglers(state: ShardState) -> None:
    """Before a step: their deadlines end."""
    if not state.deadlines.kept:
        return
    latest = state.now - state.deadlines.late_after
    for operation in state.operations:
        record = operation.machine
        if not operation.group or operation.began > latest or record.state not in _UNDER_WAY:
            continue
        if state.deadlines.is_awaited(record.key, state.now) and _is_last(state, record):
            state.deadlines.end(record.key, state.now)
            state.fleet.touch(record)
            state.stories.tell(record.key, state.now, "late for its gang: another may be bought in its place")


def _is_last(state: ShardState, late: Record) -> bool:
    """Whether half of the machines of its gang have been there for half a boot."""
    before = state.now - state.config.boot_time // 2
    there = coming = 0
    for key in state.fleet.bound.get(late.cluster, ()):
        record = state.fleet.machines[key]
        if record.stamp.group != late.stamp.group:
            continue
        if record.state == CONFIGURED and state.deadlines.configured_at(key) <= before:
            there += 1
        elif record.state == CONFIGURED or record.state in _UNDER_WAY:
            coming += 1
    return there >= coming
