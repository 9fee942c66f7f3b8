"""How seldom Python's cycle collector runs beside a shard.

Nearly everything here is freed without it, and its pauses hold up streams and steps alike: it runs for a tenth of what
Python's own thresholds have it do, and hardly at all while the first Lists come in.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_STARTING = (200_000, 10, 1000)
_SERVING = (20_000, 10, 10)


def while_starting() -> None:
    """For the time in which a fleet is read."""
    gc.set_threshold(*_STARTING)


def while_serving() -> None:
    """What the first List made stays for the life of the process: spare every later collection from walking it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_SERVING)


@contextmanager
def as_when_serving() -> Iterator[None]:
    """`while_serving` for a while, in a process that has other things to do afterwards."""
    before = gc.get_threshold()
    while_serving()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
