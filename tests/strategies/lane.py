"""One lane of the differential test in a process of its own: `python -m tests.strategies.lane FIRST FLEETS`.

Prints, as one JSON line, what kind of kernels ran, whether reading beyond a column is noticed, and what disagreed.
"""

from __future__ import annotations

import json
import sys

import numpy as np
from numba.core import config

from bigfleet.engine.kernels.jit import I8, kernel
from bigfleet.engine.kernels.view import View, view
from tests.strategies.differential import compared, is_placed
from tests.strategies.fleets import Size

SIZES = (Size(12, 4, 3), Size(24, 8, 4), Size(32, 8, 6), Size(48, 10, 8))


@view
class Shelf(View):
    """A column that kernels see through a view, as they see the engine's."""

    column: I8


@kernel
def passed(column: I8, place: int) -> int:
    return column[place]


@kernel
def seen(shelf: Shelf, place: int) -> int:
    return shelf.column[place]


@kernel
def overwritten(shelf: Shelf, place: int) -> None:
    shelf.column[place] = 1


def main(first: int, fleets: int) -> None:
    steps, reports = 0, []
    for seed in range(first, first + fleets):
        count, report = compared(seed, SIZES[seed // 4 % len(SIZES)], placed=is_placed(seed))
        steps += count
        reports += [report] if report is not None else []
    noticed = []
    if config.DISABLE_JIT or config.BOUNDSCHECK:
        noticed = [name for name, reads in _beyond().items() if _raises(reads)]
    told = {
        "jit": not config.DISABLE_JIT,
        "bounds": bool(config.BOUNDSCHECK),
        "noticed": noticed,
        "fleets": fleets,
        "steps": steps,
        "reports": reports,
    }
    print(json.dumps(told))


def _beyond() -> dict[str, tuple[object, ...]]:
    column = np.zeros(3, np.int64)
    return {"passed": (passed, column), "seen": (seen, Shelf(column)), "overwritten": (overwritten, Shelf(column))}


def _raises(reads: tuple[object, ...]) -> bool:
    try:
        reads[0](reads[1], 3)  # type: ignore[operator]
    except IndexError:
        return True
    return False


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
