"""The store of a coordinator with one replica: one SQLite file, written ahead, synced fully, held exclusively.

Whoever opens the file leads at once, one term higher than before. All access is from one thread of its own, because a
sync takes as long as the disk likes.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from bigfleet.coordinator.core.records import Row
from bigfleet.coordinator.stores.store import Leadership, StoreError

FILE = "coordinator.db"
SCHEMA = 1

T = TypeVar("T")


class SqliteStore:
    """An open state file. Opening takes it; a second process is refused."""

    most_rows = 10_000

    def __init__(self, data_dir: Path, address: str = "") -> None:
        self.path = data_dir / FILE
        self._address = address
        self._leads = False
        self._lost = asyncio.Event()
        self._resigned = False
        self._term = 0
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="coordinator-store")
        try:
            data_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
            self._db = self._thread.submit(self._opened).result()
        except (sqlite3.Error, OSError) as error:
            self._thread.shutdown(wait=False)
            why = getattr(error, "strerror", None) or error
            raise StoreError(
                f"state file {self.path} cannot be used: {why}; give --data-dir a writable directory of its own"
            ) from error
        except StoreError:
            self._thread.shutdown(wait=False)
            raise

    async def campaign(self) -> Leadership:
        if self._resigned:
            # Whoever resigned is about to end; nobody else can lead, and it must not either.
            await asyncio.Event().wait()
        term = await self._run(lambda: self._raised(0))
        rows = await self._run(self._all)
        self._lost.clear()
        self._leads = True
        return Leadership(term, rows)

    async def commit(self, rows: Sequence[Row]) -> None:
        try:
            await self._run(lambda: self._write(rows))
        except StoreError:
            self._leads = False
            self._lost.set()
            raise

    async def raise_term(self, above: int) -> int:
        return await self._run(lambda: self._raised(above))

    def leading(self) -> bool:
        return self._leads

    def leader(self) -> str:
        return self._address if self._leads else ""

    # As in the store over etcd, and no base of both: what leading means differs, these lines only say it.
    def known_term(self) -> int:
        return self._term

    async def lost(self) -> None:
        await self._lost.wait()

    async def resign(self) -> None:
        self._resigned = True
        self._leads = False
        self._lost.set()

    async def restore(self, rows: Sequence[Row], term: int) -> int:
        if await self._run(self._all):
            raise StoreError(f"state file {self.path} holds a state already; restore into an empty --data-dir")
        await self._run(lambda: self._write(rows))
        await self._run(lambda: self._raised(term - 1))
        return len(rows)

    async def close(self) -> None:
        await self.resign()
        await self._run(self._db.close)
        self._thread.shutdown(wait=True)

    async def _run(self, work: Callable[[], T]) -> T:
        def guarded() -> T:
            try:
                return work()
            except sqlite3.Error as error:
                raise StoreError(f"state file {self.path}: {error}") from error

        return await asyncio.get_running_loop().run_in_executor(self._thread, guarded)

    def _opened(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, isolation_level=None, timeout=2.0)
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        # The exclusive lock is taken by the first write, so there must be one before anything is believed.
        db.execute("BEGIN IMMEDIATE")
        db.execute("CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID")
        db.execute(
            "CREATE TABLE IF NOT EXISTS rows (kind TEXT, key TEXT, value BLOB NOT NULL, PRIMARY KEY (kind, key))"
            " WITHOUT ROWID"
        )
        db.execute("INSERT OR IGNORE INTO about VALUES ('schema', ?)", (SCHEMA,))
        db.execute("COMMIT")
        (schema,) = db.execute("SELECT value FROM about WHERE name = 'schema'").fetchone()
        if schema != SCHEMA:
            db.close()
            raise StoreError(f"state file {self.path} has schema {schema}; this version reads {SCHEMA}")
        return db

    def _all(self) -> list[Row]:
        found = self._db.execute("SELECT kind, key, value FROM rows ORDER BY kind, key").fetchall()
        return [Row(kind, key, value) for kind, key, value in found]

    def _write(self, rows: Sequence[Row]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for row in rows:
                if row.value is None:
                    self._db.execute("DELETE FROM rows WHERE kind = ? AND key = ?", (row.table, row.key))
                else:
                    self._db.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", (row.table, row.key, row.value))
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    def _raised(self, above: int) -> int:
        self._db.execute("BEGIN IMMEDIATE")
        known = self._db.execute("SELECT value FROM about WHERE name = 'term'").fetchone()
        term = max(known[0] if known else 0, above) + 1
        self._db.execute("INSERT OR REPLACE INTO about VALUES ('term', ?)", (term,))
        self._db.execute("COMMIT")
        self._term = int(term)
        return self._term
