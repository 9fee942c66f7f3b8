"""The process that compiles the engine's kernels into the cache: `python -m bigfleet.shard.runtime.kernel_compiler`.

Tells its progress as lines `DONE TOTAL` on standard output. It ends when its standard input does, so that it never
outlives the shard that started it, however that ended. `bigfleet warm` is the command for people.
"""

from __future__ import annotations

import os
import sys
import threading


def main() -> None:
    threading.Thread(target=_end_with_starter, name="starter", daemon=True).start()
    from bigfleet.engine import Engine

    Engine().warm(lambda done, total: print(done, total, flush=True))


def _end_with_starter() -> None:
    # Nothing is ever sent: the read returns when the other end is closed, which the death of its holder does too.
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    main()
