"""Builds columnar batches of any size without a Python loop over machines.

Ids are fixed-width decimals behind a prefix: text order is number order, and a workload need only remember numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.batches import NONE, Ids, MachineBatch, Rollup, Shape, Stamp
from bigfleet.model.profile import Profile

WIDTH = 8
PREFIX = b"m-"


def number_ids(numbers: NDArray[np.int64]) -> Ids:
    """Ids `m-00000042` for machine numbers."""
    size = len(PREFIX) + WIDTH
    arena = np.empty((len(numbers), size), np.uint8)
    arena[:, : len(PREFIX)] = np.frombuffer(PREFIX, np.uint8)
    rest = numbers.astype(np.int64)
    for column in range(size - 1, len(PREFIX) - 1, -1):
        arena[:, column] = rest % 10 + ord("0")
        rest = rest // 10
    return Ids(arena.reshape(-1), np.arange(len(numbers) + 1, dtype=np.int64) * size)


def numbers_of(ids: Sequence[str]) -> NDArray[np.int64]:
    """The way back, for actions."""
    return np.array([int(text[len(PREFIX) :]) for text in ids], np.int64)


def machine_batch(
    numbers: NDArray[np.int64],
    state: NDArray[np.uint8],
    shape: NDArray[np.int32],
    shapes: Sequence[Shape],
    cluster: NDArray[np.int32] | None = None,
    clusters: Sequence[str] = (),
    stamp: NDArray[np.int32] | None = None,
    stamps: Sequence[Stamp] = (),
) -> MachineBatch:
    count = len(numbers)
    nobody = np.full(count, NONE, np.int32)
    return MachineBatch(
        ids=number_ids(numbers),
        state=state.astype(np.uint8),
        shape=shape.astype(np.int32),
        cluster=nobody if cluster is None else cluster.astype(np.int32),
        stamp=nobody if stamp is None else stamp.astype(np.int32),
        not_before=np.zeros(count, np.int64),
        shapes=shapes,
        clusters=clusters,
        stamps=stamps,
    )


def rollup(
    cluster: str,
    profiles: Sequence[Profile],
    profile: Sequence[int] | NDArray[np.int64],
    resources: tuple[str, ...],
    aggregate: NDArray[np.int64],
    min_unit: NDArray[np.int64],
    groups: Sequence[str] = (),
    group: Sequence[int] | NDArray[np.int64] | None = None,
) -> Rollup:
    rows = len(profile)
    return Rollup(
        cluster=cluster,
        profiles=profiles,
        groups=groups,
        resources=resources,
        profile=np.asarray(profile, np.int32),
        group=np.full(rows, NONE, np.int32) if group is None else np.asarray(group, np.int32),
        aggregate=np.ascontiguousarray(aggregate, np.int64),
        min_unit=np.ascontiguousarray(min_unit, np.int64),
    )
