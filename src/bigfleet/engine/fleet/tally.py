"""Machine counts: by state with every step, and by (state, offer, cluster) when somebody asks.

An offer is (provider, instance type, zone, capacity type). Counts by state may be kept; the rows read the engine's
columns and are refused once it has gone on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray


class CountRow(NamedTuple):
    state: int
    provider: str
    instance_type: str
    zone: str
    capacity_type: int
    cluster: str
    count: int  # type: ignore[assignment]  # nobody asks this row how often it holds a value


class Columns(NamedTuple):
    """Per machine slot (state 0: none) its state, offer and cluster (-1: none), with the texts they stand for."""

    state: NDArray[np.uint8]
    offer: NDArray[np.int32]
    cluster: NDArray[np.int32]
    offers: list[tuple[str, str, str, int]]
    clusters: list[str]


class Counts(Struct, frozen=True, eq=False):
    """Machines by state, and by everything summaries and metrics ask for. `counted` has a row per class and a column
    per state."""

    counted: NDArray[np.int64]
    columns: Callable[[], Columns]

    @property
    def by_state(self) -> dict[int, int]:
        return dict(enumerate(self.counted.sum(axis=0).tolist()[1:], 1))

    @property
    def total(self) -> int:
        return sum(self.by_state.values())

    def rows(self) -> Iterator[CountRow]:
        """Every non-zero count; cluster is empty where there is none."""
        state, offer, cluster, offers, clusters = self.columns()
        width = len(clusters) + 1
        live = state > 0
        key = (state[live].astype(np.int64) * max(1, len(offers)) + offer[live]) * width + cluster[live] + 1
        for at, count in zip(*(column.tolist() for column in np.unique(key, return_counts=True)), strict=True):
            rest, place = divmod(at, width)
            number, which = divmod(rest, len(offers))
            provider, instance_type, zone, capacity_type = offers[which]
            home = clusters[place - 1] if place else ""
            yield CountRow(number, provider, instance_type, zone, capacity_type, home, count)
