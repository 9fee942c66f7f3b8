"""The audit log: one JSON line per action that was executed, suppressed or only pretended, with the reason for it.

Appends and rotates by size: `path`, then `path.1` (newest) to `path.N`. A line is written whole or not at all. Opening
it can refuse; a later failure to write ends the process, because an unrecorded action is worse than a restart.
"""

from __future__ import annotations

import contextlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from bigfleet.refusal import RefusalError

if TYPE_CHECKING:
    from bigfleet.shard.contract.events import Audit

DEFAULT_MAX_BYTES = 256 << 20
DEFAULT_KEEP = 5


class AuditError(RefusalError):
    """The audit log cannot be opened or written; the message names the path."""


class AuditLog:
    """Lines of `Audit` records; every call is for one thread at a time."""

    def __init__(self, path: Path, *, max_bytes: int = DEFAULT_MAX_BYTES, keep: int = DEFAULT_KEEP) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._keep = keep
        try:
            self._file = self._opened()
        except OSError as error:
            raise AuditError(f"--audit-log {path} cannot be opened: {error.strerror}") from error
        self._size = self._file.tell()

    def write(self, records: list[tuple[int, Audit]]) -> None:
        """Append records, each with its instant in Unix nanoseconds, and hand them to the operating system."""
        try:
            self._append(records)
        except OSError as error:
            raise AuditError(
                f"--audit-log {self.path} cannot be written: {error.strerror}; make room on its disk or give another "
                "path, then start again: nothing is done that cannot be told"
            ) from error

    def close(self) -> None:
        # What could not be written has been told.
        with contextlib.suppress(OSError):
            self._file.close()

    def _append(self, records: list[tuple[int, Audit]]) -> None:
        for now, record in records:
            line = audit_line(now, record).encode() + b"\n"
            if self._size and self._size + len(line) > self._max_bytes:
                self._rotate()
            self._file.write(line)
            self._size += len(line)
        self._file.flush()

    def _rotate(self) -> None:
        self._file.close()
        if self._keep < 1:
            self.path.unlink()
        else:
            for number in range(self._keep - 1, 0, -1):
                older = self._numbered(number)
                if older.exists():
                    older.replace(self._numbered(number + 1))
            self.path.replace(self._numbered(1))
        self._file = self._opened()
        self._size = 0

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    def _opened(self) -> IO[bytes]:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        file = os.fdopen(descriptor, "ab")
        file.seek(0, os.SEEK_END)
        return file


def audit_line(now: int, record: Audit) -> str:
    """One line of the log."""
    instant = datetime.fromtimestamp(now // 1_000_000_000, UTC).replace(microsecond=now // 1000 % 1_000_000)
    fields: dict[str, Any] = {
        "time": instant.isoformat().replace("+00:00", "Z"),
        "level": "INFO",
        "msg": "action",
        "cycle": record.cycle,
        "kind": record.kind,
        "machine": record.machine,
        "cluster": record.cluster,
        "reason": record.reason,
        "grace_seconds": record.grace_seconds,
        "outcome": record.outcome,
    }
    if record.detail:
        fields["detail"] = record.detail
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
