"""What clusters that report placement add to a recording: units of rows, streams, confirmations, node reports.

Every key is there only where it says something, so a recording without such clusters is what it was before them, and
recordings of earlier versions are read as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from bigfleet.engine.batches import Ids
from bigfleet.engine.placement import Counted, Load, NodeBatch

if TYPE_CHECKING:
    from bigfleet.engine.batches import DemandBatch

_UNITS = ("count", "running", "stranded")
_FLAGS = ("ready", "empty", "removable", "pinned")
_COLUMNS = (
    ("max_pod_priority", "<i4"),
    ("reclamation_dollars", "<f8"),
    ("interruption_dollars", "<f8"),
    ("closing_since", "<i8"),
    ("mirror_version", "<i8"),
    ("load", "<i4"),
)
_AMOUNTS = ("used", "allocatable")


def counted_document(counted: Counted) -> dict[str, Any]:
    return {
        **{name: getattr(counted, name).astype("<i4").tobytes() for name in _UNITS},
        "mirror_version": counted.mirror_version,
        "domain_units": [[row, [list(pair) for pair in pairs]] for row, pairs in counted.domain_units.items()],
        "exclusive": [[row, list(tokens)] for row, tokens in counted.exclusive.items()],
    }


def read_counted(document: dict[str, Any]) -> Counted:
    return Counted(
        **{name: column(document[name], "<i4") for name in _UNITS},
        mirror_version=document["mirror_version"],
        domain_units={
            row: tuple((domain, units) for domain, units in pairs) for row, pairs in document["domain_units"]
        },
        exclusive={row: tuple(tokens) for row, tokens in document["exclusive"]},
    )


def placed_demand(batch: DemandBatch) -> dict[str, Any]:
    found: dict[str, Any] = {
        "streams": list(batch.streams),
        "confirmed": [list(each) for each in batch.confirmed],
        "reports": [_report(each) for each in batch.reports],
    }
    return {name: value for name, value in found.items() if value}


def read_placed_demand(document: dict[str, Any]) -> dict[str, Any]:
    return {
        "streams": tuple(document.get("streams", ())),
        "confirmed": tuple((cluster, version) for cluster, version in document.get("confirmed", ())),
        "reports": tuple(_read_report(each) for each in document.get("reports", ())),
    }


def column(data: bytes, kind: str) -> Any:
    return np.frombuffer(data, kind).astype(np.dtype(kind).newbyteorder("="))


def _report(batch: NodeBatch) -> dict[str, Any]:
    return {
        "cluster": batch.cluster,
        "arena": batch.ids.arena.tobytes(),
        "offsets": batch.ids.offsets.astype("<i8").tobytes(),
        "resources": list(batch.resources),
        **{name: getattr(batch, name).astype("<u1").tobytes() for name in _FLAGS},
        **{name: getattr(batch, name).astype(kind).tobytes() for name, kind in _COLUMNS},
        **{name: getattr(batch, name).astype("<i8").tobytes() for name in _AMOUNTS},
        "loads": [msgspec.structs.asdict(load) for load in batch.loads],
    }


def _read_report(document: dict[str, Any]) -> NodeBatch:
    offsets = column(document["offsets"], "<i8")
    shape = (len(offsets) - 1, len(document["resources"]))
    flags: dict[str, Any] = {name: column(document[name], "<u1").astype(np.bool_) for name in _FLAGS}
    columns: dict[str, Any] = {name: column(document[name], kind) for name, kind in _COLUMNS}
    amounts: dict[str, Any] = {name: column(document[name], "<i8").reshape(shape) for name in _AMOUNTS}
    return NodeBatch(
        cluster=document["cluster"],
        ids=Ids(column(document["arena"], "<u1"), offsets),
        resources=tuple(document["resources"]),
        **flags,
        **columns,
        **amounts,
        loads=tuple(Load(**{name: tuple(values) for name, values in load.items()}) for load in document["loads"]),
    )
