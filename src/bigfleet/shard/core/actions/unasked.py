"""Keeps the engine from machines of a provider of which nothing can be asked: free ones rest until it is over.

What is bound stays as it is. Who says that it begins and ends is a stand-off (`standoffs`) or an absence (`away`).
"""

from __future__ import annotations

from bigfleet.shard.core.state.enum_aliases import IDLE, SPECULATIVE
from bigfleet.shard.core.state.state import ShardState

# Longer than any process lives.
FOR_EVER = 2**62


def hold(state: ShardState, provider: str) -> None:
    """Nobody acquires anything of this provider."""
    for record in list(state.fleet.all()):
        if record.provider == provider and record.state in (SPECULATIVE, IDLE):
            state.rest_machine(record, FOR_EVER)
    state.ask_for_cycle()


def let_go(state: ShardState, provider: str) -> None:
    """It can be asked again; what its machines rested for themselves still counts."""
    for record in list(state.fleet.all()):
        if record.provider == provider and state.not_before.get(record.key, 0) >= FOR_EVER:
            del state.not_before[record.key]
            state.rest_machine(record, state.machine_rests.until(record.key))
    state.ask_for_cycle()
