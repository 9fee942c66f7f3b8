"""Run `bigfleet` on a wall clock that somebody sets: it runs ahead of the real one by what a file says, at any moment.

    python -m tools.shifted_clock OFFSET_FILE shard --id shard-0 ...

The monotonic clock is left alone, as it is when a person or NTP sets a host's clock.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

SECOND = 1_000_000_000


def set_by(path: Path) -> None:
    """From now on the wall clock of this process is the real one plus the seconds in the file."""
    real = time.time_ns

    def time_ns() -> int:
        try:
            return real() + int(path.read_text()) * SECOND
        except (OSError, ValueError):
            return real()

    # Not `time.time`: gRPC turns deadlines into instants with it and hands them to a core that sees the real clock.
    time.time_ns = time_ns


def main() -> None:
    set_by(Path(sys.argv.pop(1)))
    from bigfleet.cli.bigfleet import main as run

    run()


if __name__ == "__main__":
    main()
