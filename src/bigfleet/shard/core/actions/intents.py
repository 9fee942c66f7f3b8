"""Intents: what the shard is about to do to a machine, journalled before the first call.

After a crash the journal says what a half-finished purchase or binding was for, so it is neither made twice nor lost.
A row that cannot be read is dropped: the engine decides about the machine anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from msgspec import Struct
from msgspec.json import encode

from bigfleet.engine.results import ActionKind
from bigfleet.shard.contract.events import Table
from bigfleet.shard.core.state.operations import Operation
from bigfleet.shard.core.state.turn import Turn


class Intent(Struct, frozen=True):
    """One journalled purchase, binding or release."""

    kind: ActionKind
    cluster: str
    fingerprint: str
    group: str
    deadline: int
    reason: str
    cycle: int


def write(turn: Turn, operation: Operation, deadline: int) -> None:
    intent = Intent(
        operation.kind,
        operation.cluster,
        operation.fingerprint,
        operation.group,
        deadline,
        operation.reason,
        operation.cycle,
    )
    turn.write(Table.INTENT, operation.journal_key, encode(intent).decode())


def read(rows: Mapping[tuple[Table, str], str]) -> dict[str, Intent]:
    """All intents of the journal by machine identity."""
    found = {key: _parse(text) for (table, key), text in rows.items() if table == Table.INTENT}
    return {key: intent for key, intent in found.items() if intent is not None}


def _parse(text: str) -> Intent | None:
    try:
        row = json.loads(text)
        return Intent(
            kind=ActionKind(row["kind"]),
            cluster=str(row["cluster"]),
            fingerprint=str(row["fingerprint"]),
            group=str(row["group"]),
            deadline=int(row["deadline"]),
            reason=str(row["reason"]),
            cycle=int(row["cycle"]),
        )
    except (ValueError, KeyError, TypeError):
        return None
