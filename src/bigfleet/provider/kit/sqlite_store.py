"""The durable store: one SQLite file in write-ahead mode, one row per machine, removal, fence and operation.

`write` is one transaction with a full sync, so callers batch: many acknowledgements share one commit. The file is
held exclusively, because two providers writing one state would hand out the same operation ids.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

# The rows of `kit.store`, each as this store keeps it.
from bigfleet.provider.kit.core.events import (
    ForgetFence,
    ForgetRemovals,
    Row,
    SaveFence,
    SaveMachine,
    SaveOperation,
    SaveRemoval,
)
from bigfleet.provider.kit.core.fleet import Snapshot
from bigfleet.provider.kit.core.records import Kind, MachineRecord
from bigfleet.provider.kit.store import StoreError, new_generation

SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE machines (id TEXT PRIMARY KEY, revision INTEGER NOT NULL, record BLOB NOT NULL);
CREATE TABLE removals (id TEXT PRIMARY KEY, revision INTEGER NOT NULL, relist_at REAL, record BLOB NOT NULL);
CREATE TABLE fences (shard_id TEXT, machine_id TEXT, epoch INTEGER NOT NULL, sequence INTEGER NOT NULL,
                     PRIMARY KEY (shard_id, machine_id)) WITHOUT ROWID;
CREATE TABLE operations (machine_id TEXT, kind TEXT, operation_id TEXT NOT NULL, number INTEGER NOT NULL,
                         PRIMARY KEY (machine_id, kind)) WITHOUT ROWID;
"""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(MachineRecord).decode


class SqliteStore:
    """A state file. Opening it takes it; a second process is refused."""

    durable = True

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._prepare()
        except (sqlite3.Error, OSError) as error:
            raise StoreError(
                f"state file {path} cannot be used: {error}; give a writable path that no other provider has open"
            ) from error

    def load(self) -> Snapshot:
        rows = self._db.execute
        return Snapshot(
            self._meta("generation"),
            [_decode(record) for (record,) in rows("SELECT record FROM machines")],
            [SaveFence(*row) for row in rows("SELECT shard_id, machine_id, epoch, sequence FROM fences")],
            [
                SaveOperation(machine_id, Kind(kind), operation_id, number)
                for machine_id, kind, operation_id, number in rows(
                    "SELECT machine_id, kind, operation_id, number FROM operations"
                )
            ],
            [
                SaveRemoval(_decode(record), revision, relist_at)
                for revision, relist_at, record in rows("SELECT revision, relist_at, record FROM removals")
            ],
            int(self._meta("floor")),
        )

    def write(self, rows: Sequence[Row]) -> None:
        machines: dict[str, SaveMachine | SaveRemoval] = {}
        fences: dict[tuple[str, str], SaveFence | ForgetFence] = {}
        operations: dict[tuple[str, str], SaveOperation] = {}
        forgotten: list[ForgetRemovals] = []
        for row in rows:
            match row:
                case SaveMachine() | SaveRemoval():
                    machines[row.machine.id] = row
                case SaveFence() | ForgetFence():
                    fences[row.shard_id, row.machine_id] = row
                case SaveOperation():
                    operations[row.machine_id, row.kind.value] = row
                case ForgetRemovals():
                    forgotten.append(row)
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._write_machines(machines.values())
            self._write_fences(fences.values())
            self._many(
                "INSERT OR REPLACE INTO operations VALUES (?, ?, ?, ?)",
                [(o.machine_id, o.kind.value, o.operation_id, o.number) for o in operations.values()],
            )
            for removal in forgotten:
                # A later row of the same batch may have buried the id again; only older tombstones go.
                old = [(machine_id, removal.floor) for machine_id in removal.machine_ids]
                self._many("DELETE FROM removals WHERE id = ? AND revision <= ?", old)
                self._many("INSERT OR REPLACE INTO meta VALUES (?, ?)", [("floor", str(removal.floor))])
            self._db.execute("COMMIT")
        except BaseException:
            # A full disk has rolled back by itself; that there is nothing left to do must not hide why.
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise

    def close(self) -> None:
        self._db.close()

    def _write_machines(self, changes: Iterable[SaveMachine | SaveRemoval]) -> None:
        saved, gone = [], []
        for change in changes:
            record = change.machine
            if isinstance(change, SaveMachine):
                saved.append((record.id, record.revision, _encode(record)))
            else:
                gone.append((record.id, change.revision, change.relist_at, _encode(record)))
        self._many("INSERT OR REPLACE INTO machines VALUES (?, ?, ?)", saved)
        self._many("DELETE FROM removals WHERE id = ?", [(row[0],) for row in saved])
        self._many("INSERT OR REPLACE INTO removals VALUES (?, ?, ?, ?)", gone)
        self._many("DELETE FROM machines WHERE id = ?", [(row[0],) for row in gone])

    def _write_fences(self, changes: Iterable[SaveFence | ForgetFence]) -> None:
        saved, gone = [], []
        for change in changes:
            if isinstance(change, SaveFence):
                saved.append((change.shard_id, change.machine_id, change.epoch, change.sequence))
            else:
                gone.append((change.shard_id, change.machine_id))
        self._many("INSERT OR REPLACE INTO fences VALUES (?, ?, ?, ?)", saved)
        self._many("DELETE FROM fences WHERE shard_id = ? AND machine_id = ?", gone)

    def _many(self, statement: str, parameters: Sequence[tuple[Any, ...]]) -> None:
        if parameters:
            self._db.executemany(statement, parameters)

    def _prepare(self) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version == SCHEMA_VERSION:
            return
        if version != 0:
            raise StoreError(f"state file {self._path} has version {version}; this kit reads version {SCHEMA_VERSION}")
        self._db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION};")
        first = [("generation", new_generation()), ("floor", "0")]
        self._db.executemany("INSERT INTO meta VALUES (?, ?)", first)
        self._db.execute("COMMIT")

    def _meta(self, key: str) -> str:
        (value,) = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return str(value)
