"""What a snapshot says: a state as JSON with its checksum, read back with everything that is wrong with it.

The three listings are those of the reference and are enough to restore from; `rows` holds everything, and when it is
there it decides. A restored state starts far above every revision and term that may have been handed out since.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, NamedTuple

from msgspec.structs import replace

from bigfleet.coordinator.core import commands as do
from bigfleet.coordinator.core.commands import Refused
from bigfleet.coordinator.core.records import BadRow, Row, kept
from bigfleet.coordinator.core.state import State
from bigfleet.coordinator.stores.store import RESTORE_STEP

FORMAT = "bigfleet-coordinator-1"


class SnapshotError(Exception):
    """A snapshot that cannot be used; one sentence says what is wrong with it."""


class Snapshot(NamedTuple):
    """The two parts, as bytes: they travel and are kept like this."""

    meta: bytes
    data: bytes


class Verdict(NamedTuple):
    """What reading a snapshot found. It can be restored when there are no problems."""

    problems: list[str]
    revision: int = 0
    term: int = 0
    state: State = State()


def snapshot_of(state: State, term: int, now: int) -> Snapshot:
    tables = state.tables
    data = json.dumps(
        {
            "shards": [
                {"ID": each.id, "Address": each.address, "RegisteredAt": _instant(each.registered_at)}
                for _, each in sorted(tables.shards.items())
            ],
            "cluster_to_shard": {
                name: tables.generations[each.holder].id for name, each in sorted(tables.clusters.items())
            },
            "domain_to_shard": [
                {"domain": {"Key": key, "Value": value}, "shard": tables.generations[each.holder].id}
                for (key, value), each in sorted(tables.domains.items())
                if each.holder
            ],
            "rows": [[row.table, row.key, (row.value or b"").decode()] for row in tables.rows()],
        },
        ensure_ascii=False,
        separators=(",", ":"),
    ).encode()
    meta = {
        "Format": FORMAT,
        "Version": 1,
        "ID": f"{term}-{state.revision}-{now // 1_000_000}",
        "Index": max(1, state.revision),
        "Term": term,
        "Size": len(data),
        "Sha256": sha256(data).hexdigest(),
    }
    return Snapshot(json.dumps(meta, separators=(",", ":")).encode(), data)


def verify(snapshot: Snapshot) -> Verdict:
    """Everything that speaks against restoring this snapshot."""
    try:
        meta = json.loads(snapshot.meta)
        revision, term = int(meta["Index"]), int(meta["Term"])
    except (ValueError, KeyError, TypeError) as error:
        return Verdict([f"meta.json cannot be read: {error!r}"])
    found = [] if revision > 0 else ["meta.json has index 0; a snapshot has at least 1"]
    if "Size" in meta and meta["Size"] != len(snapshot.data):
        found.append(f"state has {len(snapshot.data)} bytes; meta.json says {meta['Size']}")
    # Snapshots of the reference have no format and no checksum.
    if ("Format" in meta or "Sha256" in meta) and meta.get("Sha256") != sha256(snapshot.data).hexdigest():
        found.append("the checksum of state is not the one in meta.json: it was changed or damaged")
    try:
        state = _state(json.loads(snapshot.data))
    except (ValueError, KeyError, TypeError, AttributeError, BadRow, Refused) as error:
        return Verdict([*found, f"state cannot be read: {error}"], revision, term)
    return Verdict([*found, *state.validate()], revision, term, state)


def restorable(verdict: Verdict) -> tuple[list[Row], int]:
    """Rows and the term below the first new one, lifted past everything that was handed out."""
    tables = verdict.state.tables
    lifted = max(verdict.revision, tables.meta.revision) + RESTORE_STEP
    meta = replace(tables.meta, revision=lifted, fleet_version=lifted)
    rows = [row for row in tables.rows() if row.table != meta.table.value]
    return [kept(meta), *rows], verdict.term + RESTORE_STEP


def _state(document: dict[str, Any]) -> State:
    if "rows" in document:
        state = State(Row(table, key, value.encode()) for table, key, value in document["rows"])
        _compare(state, document)
        return state
    state = State()
    for each in document.get("shards") or ():
        state.apply(do.AddShard(each["ID"], each.get("Address", ""), _nanos(each.get("RegisteredAt", ""))))
    for cluster, shard in sorted((document.get("cluster_to_shard") or {}).items()):
        state.apply(do.BindCluster(cluster, shard, 0))
    for each in document.get("domain_to_shard") or ():
        state.apply(do.AssignDomain(each["domain"]["Key"], each["domain"]["Value"], each["shard"]))
    return state


def _compare(state: State, document: dict[str, Any]) -> None:
    """The listings people read must say what the rows say."""
    told = {each["ID"] for each in document.get("shards") or ()}
    if told != state.tables.shards.keys():
        raise ValueError(f"shards are {sorted(told)}, the rows hold {sorted(state.tables.shards)}")


def _instant(nanos: int) -> str:
    whole = datetime.fromtimestamp(nanos // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}.{nanos % 10**9:09d}Z"


def _nanos(text: str) -> int:
    if not text:
        return 0
    whole, _, fraction = text.rstrip("Z").partition(".")
    seconds = int(datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp())
    return seconds * 10**9 + int(fraction[:9].ljust(9, "0") or 0)
