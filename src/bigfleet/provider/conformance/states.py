"""The eight machine states as the suite speaks of them, and the grid of what each state may carry.

Numbers equal the wire enum; the suite keeps its own copy because it must judge a provider, not share its model.
"""

from __future__ import annotations

import enum


class State(enum.IntEnum):
    """MachineState of the wire contract."""

    UNSPECIFIED = 0
    SPECULATIVE = 1
    CREATING = 2
    IDLE = 3
    CONFIGURING = 4
    CONFIGURED = 5
    DRAINING = 6
    DELETING = 7
    FAILED = 8

    def __eq__(self, other: object) -> bool:
        """Equal to the wire's number, whatever integer type the generated code gives it."""
        return int(self) == other

    __hash__ = int.__hash__


STABLE = frozenset({State.SPECULATIVE, State.IDLE, State.CONFIGURED})
TRANSITIONAL = frozenset({State.CREATING, State.CONFIGURING, State.DRAINING, State.DELETING})

# A fast backend may skip the transitional state; it may never skip a stable one or show another edge's.
LEGAL_STEPS = frozenset(
    {
        (State.SPECULATIVE, State.CREATING),
        (State.SPECULATIVE, State.IDLE),
        (State.CREATING, State.IDLE),
        (State.IDLE, State.CONFIGURING),
        (State.IDLE, State.CONFIGURED),
        (State.CONFIGURING, State.CONFIGURED),
        (State.CONFIGURED, State.DRAINING),
        (State.CONFIGURED, State.IDLE),
        (State.DRAINING, State.IDLE),
    }
)

BARE_METAL, RESERVED, ON_DEMAND, SPOT = 1, 2, 3, 4


def state_name(number: int) -> str:
    """The state's word, or the bare number when the contract knows none."""
    try:
        return State(number).name
    except ValueError:
        return f"state {number}"
