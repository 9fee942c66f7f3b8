"""What fits on some nodes: as the scheduler will bind it, or as tightly as it can be placed.

Owns the prototype's look at free room; it changes only the columns of free room and tokens it is handed.
"""

from __future__ import annotations

import numpy as np

from bench.quality.demand import NOBODY
from bench.quality.kinds import Flags, Ints
from bench.quality.world import World


def queued(world: World, pods: list[int], rows: Ints, free: Ints, tokens: Flags) -> Ints:
    """What the scheduler will leave over: it binds first come, first served, whatever a machine was bought for."""
    classes = world.trace.classes
    rest = np.zeros(len(classes), np.int64)
    # Which boots first nobody knows; who was bought first is as good a guess as any.
    order = np.argsort(world.nodes.serial[rows], kind="stable")
    kinds = world.nodes.kind[rows]
    hopeless: set[int] = set()
    for pod in pods:
        cls = int(world.trace.cls[pod])
        found = NOBODY
        if cls not in hopeless:
            fits = (free >= classes.request[cls]).all(1) & world.may_run[cls, kinds]
            token = int(classes.exclusive[cls])
            if token != NOBODY:
                fits &= ~tokens[:, token]
            found = next((int(place) for place in order if fits[place]), NOBODY)
        if found == NOBODY:
            hopeless.add(cls)
            rest[cls] += 1
            continue
        free[found] -= classes.request[cls]
        if classes.exclusive[cls] != NOBODY:
            tokens[found, classes.exclusive[cls]] = True
    return rest


def place(world: World, by_value: Ints, counts: Ints, rows: Ints, free: Ints, tokens: Flags) -> Ints:
    """Takes off the counts what fits on rows, larger units first, tightest row first; `free` is used up."""
    rest = counts.copy()
    if not len(rows):
        return rest
    classes = world.trace.classes
    kinds = world.nodes.kind[rows]
    order = by_value
    for cls in order[rest[order] > 0].tolist():
        request = classes.request[cls]
        token = int(classes.exclusive[cls])
        fits = (free >= request).all(1) & world.may_run[cls, kinds]
        if token != NOBODY:
            fits &= ~tokens[:, token]
        able = np.flatnonzero(fits)
        for row in able[np.argsort(free[able, 0], kind="stable")].tolist():
            take = min(
                int(rest[cls]), *(int(have // want) for have, want in zip(free[row], request, strict=True) if want)
            )
            if token != NOBODY:
                take = 1
                tokens[row, token] = True
            free[row] -= take * request
            rest[cls] -= take
            if not rest[cls]:
                break
    return rest
