"""The shard's own small memory, `<data-dir>/shard.db`: its epoch, and the rows the core asks to keep.

The epoch is one more than the last, and no less than the milliseconds since 1970: a lost file does not begin anew.
One process per data directory, by a lock that dies with it. What `write` returns from is on disk. Losing the file may
only make the shard more cautious, so nothing else is kept here: machines come from List, demand from operators.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

from bigfleet.refusal import RefusalError
from bigfleet.shard.contract.events import JournalState, Table

if TYPE_CHECKING:
    from collections.abc import Iterable

FILE = "shard.db"
LOCK = "lock"
LEGACY_EPOCH = "epoch"
_SCHEMA = 1


class JournalError(RefusalError):
    """The data directory cannot be used; the message says which file and what is wrong with it."""


class JournalFile:
    """An open journal. `state` is what the core begins with; opening it has raised the epoch, durably."""

    def __init__(self, data_dir: Path, shard_id: str, *, min_epoch: int = 0, unix_ms: int | None = None) -> None:
        self.path = data_dir / FILE
        self._lock = _locked(data_dir)
        # A journal that was lost must not bring back an epoch that providers have seen the end of.
        least = max(min_epoch, milliseconds() if unix_ms is None else unix_ms)
        try:
            self._db = _opened(self.path)
            self.state = self._begun(shard_id, max(least, _legacy_epoch(data_dir / LEGACY_EPOCH) + 1))
        except (sqlite3.Error, OSError, ValueError, JournalError) as error:
            self._lock.close()
            if isinstance(error, JournalError):
                raise
            raise JournalError(f"journal {self.path} cannot be used: {error}; {_advice(error)}") from error

    @property
    def epoch(self) -> int:
        return self.state.epoch

    def write(self, entries: Iterable[tuple[Table, str, str | None]]) -> None:
        """Keep (value) or drop (None) rows, in order, in one transaction; durable on return. Any thread may call it."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for table, key, value in entries:
                if value is None:
                    self._db.execute("DELETE FROM rows WHERE kind = ? AND key = ?", (int(table), key))
                else:
                    self._db.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", (int(table), key, value))
            self._db.execute("COMMIT")
        except BaseException as error:
            # A full disk has rolled back by itself; that there is nothing left to do must not hide why.
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise JournalError(f"journal {self.path} cannot be written: {error}; {_advice(error)}") from error
            raise

    def close(self) -> None:
        self._db.close()
        self._lock.close()

    def _begun(self, shard_id: str, least_epoch: int) -> JournalState:
        self._db.execute("BEGIN IMMEDIATE")
        meta = dict(self._db.execute("SELECT name, value FROM meta").fetchall())
        if int(meta.get("schema", _SCHEMA)) != _SCHEMA:
            raise JournalError(f"journal {self.path} has schema {meta['schema']}; this version reads {_SCHEMA}")
        owner = meta.get("shard_id", shard_id)
        if owner != shard_id:
            raise JournalError(
                f"journal {self.path} belongs to shard {owner!r}, not {shard_id!r}; give each shard its own --data-dir"
            )
        epoch = max(int(meta.get("epoch", 0)) + 1, least_epoch)
        for name, value in (("schema", str(_SCHEMA)), ("shard_id", shard_id), ("epoch", str(epoch))):
            self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))
        rows = self._db.execute("SELECT kind, key, value FROM rows ORDER BY kind, key").fetchall()
        self._db.execute("COMMIT")
        known = {int(table) for table in Table}
        return JournalState(epoch, {(Table(kind), key): value for kind, key, value in rows if kind in known})


def _advice(error: Exception) -> str:
    """What a person can do about it."""
    said = str(error).lower()
    if "full" in said or "no space" in said:
        return "make room on its disk, then start again: nothing was half-written"
    if "not a database" in said or "malformed" in said or isinstance(error, ValueError):
        return "it is not a journal or is damaged; move it away and start again, the shard only becomes more cautious"
    if "readonly" in said or "unable to open" in said or "permission" in said:
        return "let this user write it, or give another --data-dir"
    return "mend it, or move it away and start again: the shard only becomes more cautious"


def milliseconds() -> int:
    """Since 1970, by this host's clock."""
    return time.time_ns() // 1_000_000


def _opened(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)
    path.chmod(0o600)
    db.execute("PRAGMA journal_mode = WAL")
    # FULL: a commit is on disk when it returns, not only after the next checkpoint.
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")
    db.execute(
        "CREATE TABLE IF NOT EXISTS rows (kind INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,"
        " PRIMARY KEY (kind, key)) WITHOUT ROWID"
    )
    return db


def _locked(data_dir: Path) -> IO[str]:
    try:
        data_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
        lock = (data_dir / LOCK).open("a+")
    except OSError as error:
        raise _unusable(data_dir, error) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise JournalError(f"--data-dir {data_dir} is in use by the process {holder}; a shard needs its own") from None
    try:
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
    except OSError as error:
        # What could not be written is written again when it is closed.
        with contextlib.suppress(OSError):
            lock.close()
        raise _unusable(data_dir, error) from error
    return lock


def _unusable(data_dir: Path, error: OSError) -> JournalError:
    advice = "; make room on its disk, then start again" if error.errno == errno.ENOSPC else ""
    return JournalError(f"--data-dir {data_dir} cannot be used: {error.strerror}{advice}")


def _legacy_epoch(path: Path) -> int:
    """The epoch of a shard that kept it in a text file: ours must be newer, or providers would fence us."""
    try:
        text = path.read_text().strip()
    except FileNotFoundError:
        return 0
    if not text.isascii() or not text.isdecimal():
        raise JournalError(f"epoch file {path} holds {text[:40]!r}; a decimal number is accepted")
    return int(text)
