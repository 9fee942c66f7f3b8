"""Whether engine inputs are being recorded, and where: switched by `--record` and by an admin at run time.

Files started at run time lie in the data directory and begin with a snapshot of machines and demand, whose ages start
anew. A recording that can no longer be written switches itself off and says so: it must never stop the shard.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog

from bigfleet.shard.recording.format import Recorder, RecordingError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bigfleet.shard.contract.events import RunStep

log = structlog.get_logger(__name__)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class RecordingState:
    recording: bool = False
    path: str = ""
    started: int = 0
    bytes_written: int = 0


class Recording:
    """At most one open recorder. Written by the engine's thread, switched by the event loop."""

    def __init__(
        self,
        data_dir: Path,
        *,
        shard_id: str,
        epoch: int,
        clock: Callable[[], int],
        snapshot: Callable[[], RunStep | None] = lambda: None,
    ) -> None:
        self._data_dir = data_dir
        self._shard_id = shard_id
        self._epoch = epoch
        self._clock = clock
        self._snapshot = snapshot
        self._recorder: Recorder | None = None
        self._lock = threading.Lock()
        self._last = RecordingState()

    @property
    def state(self) -> RecordingState:
        recorder = self._recorder
        if recorder is None:
            return self._last
        return RecordingState(True, str(recorder.path), recorder.started, recorder.bytes_written)

    def open(self, path: Path) -> None:
        """`--record`: from the first step on; raises RecordingError."""
        with self._lock:
            self._recorder = Recorder(path, shard_id=self._shard_id, epoch=self._epoch, started=self._clock())
        log.info("recording engine inputs", path=str(path))

    def start(self, name: str) -> None:
        """Begin a file in the data directory; raises ValueError for a name that will not do."""
        if self._recorder is not None:
            raise ValueError(f"already recording to {self._recorder.path}; stop that first")
        name = name or f"recording-{datetime.now(UTC):%Y%m%dT%H%M%S}.rec"
        if not _NAME.fullmatch(name):
            raise ValueError(f"file_name {name!r} is not a plain name; letters, digits, '.', '_' and '-' are accepted")
        first = self._snapshot()
        try:
            self.open(self._data_dir / name)
        except RecordingError as error:
            raise ValueError(str(error)) from error
        if first is not None:
            self.write(first)

    def stop(self) -> None:
        with self._lock:
            self._last = RecordingState(False, self.state.path, self.state.started, self.state.bytes_written)
            if self._recorder is not None:
                self._recorder.close()
                self._recorder = None

    def write(self, wanted: RunStep) -> None:
        """Record a step if anybody wants it."""
        with self._lock:
            recorder = self._recorder
            if recorder is None:
                return
            try:
                recorder.write(wanted)
                return
            except OSError as error:
                log.error("recording stopped: it cannot be written", path=str(recorder.path), err=str(error))
                self._last = RecordingState(False, str(recorder.path), recorder.started, recorder.bytes_written)
                self._recorder = None
