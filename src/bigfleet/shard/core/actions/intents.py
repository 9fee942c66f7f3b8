"""Intents: what the shard is about to do to a machine, journalled before the first call.

After a crash the journal says what a half-finished purchase or binding was for, so it is neither made twice nor lost.
A row that cannot be read is dropped: the engine decides about the machine anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.json import encode

from bigfleet.engine.batches import Shape
from bigfleet.engine.results import ActionKind
from bigfleet.model.resources import Resources
from bigfleet.model.taint import Taint
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
    # When the provider was asked or answered last, and of a purchase what was offered and for which unit.
    asked: int = 0
    shape: list[Any] | None = None
    min_unit: str = ""


def write(turn: Turn, operation: Operation, deadline: int, asked: int, *, lazy: bool = False) -> None:
    intent = Intent(
        operation.kind,
        operation.cluster,
        operation.fingerprint,
        operation.group,
        deadline,
        operation.reason,
        operation.cycle,
        asked,
        _row(operation.offered or operation.machine.shape) if operation.kind == ActionKind.PROVISION else None,
        operation.min_unit,
    )
    turn.write(Table.INTENT, operation.journal_key, encode(intent).decode(), lazy=lazy)


def shape_of(intent: Intent) -> Shape | None:
    """What was bought, as far as the row tells."""
    try:
        row = intent.shape or []
        provider, instance_type, zone, capacity, price, probability, allocatable, labels, taints = row
        return Shape(
            str(provider),
            str(instance_type),
            str(zone),
            int(capacity),
            float(price),
            float(probability),
            Resources({str(name): int(amount) for name, amount in allocatable.items()}),
            tuple((str(key), str(value)) for key, value in labels),
            tuple(Taint(*taint) for taint in taints),
        )
    except (ValueError, TypeError, AttributeError):
        return None


def _row(shape: Shape) -> list[Any]:
    return [
        shape.provider,
        shape.instance_type,
        shape.zone,
        int(shape.capacity_type),
        shape.price,
        shape.probability,
        dict(shape.allocatable.items()),
        shape.labels,
        [(taint.key, taint.value, taint.effect) for taint in shape.taints],
    ]


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
            asked=int(row.get("asked", 0)),
            shape=row.get("shape"),
            min_unit=str(row.get("min_unit", "")),
        )
    except (ValueError, KeyError, TypeError):
        return None
