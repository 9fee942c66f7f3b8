"""Machine counts by (state, offer, cluster), kept up to date record by record and published as plain columns.

An offer is (provider, instance type, zone, capacity type). What is published is never changed afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.columns import grown, made, room
from bigfleet.engine.jit import I4, I8, inner, kernel
from bigfleet.engine.view import View, view

_USED, _VERSION = 0, 1


@view
class Tally(View):
    """One row per key ever seen; `table` maps hashes to rows."""

    state: I4
    offer: I4
    cluster: I4
    count: I8
    table: I4
    meta: I8


class CountRow(NamedTuple):
    state: int
    provider: str
    instance_type: str
    zone: str
    capacity_type: int
    cluster: str
    count: int  # type: ignore[assignment]  # nobody asks this row how often it holds a value


@dataclass(frozen=True)
class Counts:
    """Machines by state, and by everything summaries and metrics ask for."""

    by_state: dict[int, int]
    state: NDArray[np.int32]
    offer: NDArray[np.int32]
    cluster: NDArray[np.int32]
    count: NDArray[np.int64]
    offers: tuple[tuple[str, str, str, int], ...]
    clusters: tuple[str, ...]

    @property
    def total(self) -> int:
        return sum(self.by_state.values())

    def rows(self) -> Iterator[CountRow]:
        """Every non-zero count; cluster is empty where there is none."""
        for at in np.nonzero(self.count)[0].tolist():
            cluster = int(self.cluster[at])
            yield CountRow(
                int(self.state[at]),
                *self.offers[int(self.offer[at])],
                self.clusters[cluster] if cluster >= 0 else "",
                int(self.count[at]),
            )


class TallyStore:
    """Owns the counts and the last published copy."""

    def __init__(self) -> None:
        self.v = made(Tally, 16)._replace(table=np.full(64, -1, np.int32))
        self._published: Counts | None = None
        self._version = -1

    def reserve(self, records: int) -> None:
        v = self.v
        rows = room(len(v.state), int(v.meta[_USED]) + records)
        if rows > len(v.state):
            v = v._replace(
                state=grown(v.state, rows),
                offer=grown(v.offer, rows),
                cluster=grown(v.cluster, rows),
                count=grown(v.count, rows),
            )
        size = len(v.table)
        while size < rows * 2:
            size *= 2
        if size > len(v.table):
            v = v._replace(table=np.full(size, -1, np.int32))
            retable(v)
        self.v = v

    def publish(self, offers: list[tuple[str, str, str, int]], clusters: list[str]) -> Counts:
        v = self.v
        if self._published is not None and self._version == int(v.meta[_VERSION]):
            return self._published
        used = int(v.meta[_USED])
        by_state = np.bincount(v.state[:used], v.count[:used], minlength=9)
        self._published = Counts(
            {state: int(by_state[state]) for state in range(1, 9)},
            v.state[:used],
            v.offer[:used],
            v.cluster[:used],
            v.count[:used].copy(),
            tuple(offers),
            tuple(clusters),
        )
        self._version = int(v.meta[_VERSION])
        return self._published


@inner
def _hash(state: int, offer: int, cluster: int) -> int:
    value = (int(offer) * 668265263 + (int(cluster) + 1) * 374761393 + int(state) * 97) & 0x7FFFFFFFFFFF
    return (value ^ (value >> 18)) & 0x7FFFFFFF


@inner
def count_machine(tally: Tally, state: int, offer: int, cluster: int, change: int) -> None:
    """Adds one machine to a count or takes it away."""
    tally.meta[_VERSION] += 1
    mask = len(tally.table) - 1
    at = _hash(state, offer, cluster) & mask
    while tally.table[at] >= 0:
        row = tally.table[at]
        if tally.offer[row] == offer and tally.cluster[row] == cluster and tally.state[row] == state:
            tally.count[row] += change
            return
        at = (at + 1) & mask
    row = tally.meta[_USED]
    tally.meta[_USED] += 1
    tally.table[at] = row
    tally.state[row] = state
    tally.offer[row] = offer
    tally.cluster[row] = cluster
    tally.count[row] = change


@kernel
def retable(tally: Tally) -> None:
    mask = len(tally.table) - 1
    for row in range(tally.meta[_USED]):
        at = _hash(tally.state[row], tally.offer[row], tally.cluster[row]) & mask
        while tally.table[at] >= 0:
            at = (at + 1) & mask
        tally.table[at] = row
