"""The order in which actions are read, and where a page goes on: what is under way by machine, then what ended, newest
first. A token names what was read last and not a position, so nothing is skipped or told twice while more happens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from bigfleet.shard.read import views

if TYPE_CHECKING:
    from collections.abc import Callable

    from bigfleet.shard.core.actions.emission import ActionTaken
    from bigfleet.shard.core.state.fleet import Record
    from bigfleet.shard.core.state.operations import Operation
    from bigfleet.wire import shardread_pb2

_UNDER_WAY = "u:"
_ENDED = "e:"


def is_token(text: str) -> bool:
    """Whether this is a token given out here."""
    return not text or text.startswith(_UNDER_WAY) or (text.startswith(_ENDED) and text[len(_ENDED) :].isdecimal())


def actions_after(
    token: str,
    under_way: Iterable[Operation],
    ended: Iterable[ActionTaken],
    record: Callable[[str], Record | None],
) -> Iterator[tuple[str, shardread_pb2.ActionView]]:
    """Every action after the one the token names, each with its own token."""
    before = int(token.removeprefix(_ENDED)) if token.startswith(_ENDED) else None
    if before is None:
        after = token.removeprefix(_UNDER_WAY)
        for operation in sorted(under_way, key=lambda each: each.machine.key):
            if operation.machine.key > after:
                yield f"{_UNDER_WAY}{operation.machine.key}", views.operation_view(operation)
    for taken in reversed(tuple(ended)):
        if before is None or taken.number < before:
            yield f"{_ENDED}{taken.number}", views.action_view(taken, record(taken.machine))
