"""Machines late for a gang that is otherwise there: no step counts on them, so that one is bought in place of each.

A gang waits for its last machine, and one that takes minutes longer than its likes seldom comes soon after. Late is who
has been Creating or Configuring for one boot more than is usual when half of the machines of its gang have been
Configured for half a boot: where all take longer, nobody is late.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from bigfleet.shard.core.state.enum_aliases import CONFIGURED, CONFIGURING, CREATING

if TYPE_CHECKING:
    from bigfleet.shard.core.state.state import ShardState

_UNDER_WAY = frozenset({CREATING, CONFIGURING})


def give_up_stragglers(state: ShardState) -> None:
    """Before a step: their deadlines end."""
    if not state.deadlines.kept:
        return
    latest = state.now - state.deadlines.late_after
    mostly_there: dict[str, Counter[str]] = {}
    for operation in state.operations:
        record = operation.machine
        if not operation.group or operation.began > latest or record.state not in _UNDER_WAY:
            continue
        if not state.deadlines.is_awaited(record.key, state.now):
            continue
        if record.cluster not in mostly_there:
            mostly_there[record.cluster] = _there_beyond_coming(state, record.cluster)
        if mostly_there[record.cluster][record.stamp.group] >= 0:
            state.deadlines.end(record.key, state.now)
            state.fleet.touch(record)
            state.stories.tell(record.key, state.now, "late for its gang: another may be bought in its place")


def _there_beyond_coming(state: ShardState, cluster: str) -> Counter[str]:
    """By gang, how many more machines have been there for half a boot than are still to come."""
    before = state.now - state.config.boot_time // 2
    found: Counter[str] = Counter()
    for key in state.fleet.bound.get(cluster, ()):
        record = state.fleet.machines[key]
        if not record.stamp.group:
            continue
        if record.state == CONFIGURED and state.deadlines.configured_at(key) <= before:
            found[record.stamp.group] += 1
        elif record.state == CONFIGURED or record.state in _UNDER_WAY:
            found[record.stamp.group] -= 1
    return found
