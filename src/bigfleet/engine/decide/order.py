"""The order of service (R2.8), for everybody outside the kernels: by precedence, arrival, cluster and row.

Assign, Preempt, actions and verdicts go by it, for entries of sums and of units alike. The kernels' own place of it is
`assign.order_pending`, which sorts by the same four.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.decide.world import World


def in_order(w: World, entries: NDArray[np.int32] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Places of entries in the order in which they are served; equal ones stay as they are."""
    return np.lexsort(_keys(w, entries)[::-1])


def ranks(w: World, entries: NDArray[np.int32]) -> NDArray[np.int64]:
    """What entries are ordered by, as rows of numbers, most significant first."""
    return np.stack(_keys(w, entries)).astype(np.int64)


def _keys(w: World, entries: NDArray[np.int32] | NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    e = w.e
    return (w.p.precedence[e.prof[entries]], e.arrival[entries], w.c.rank[e.cluster[entries]], e.seq[entries])


def runs(sums: NDArray[np.int64], turns: NDArray[np.int64]) -> Iterator[tuple[bool, int, int]]:
    """Stretches of entries of one kind in the order of service, given the ranks of both in their own order: whether
    they are turns, and the first and last of them."""
    both = np.concatenate((sums, turns), axis=1)
    order = np.lexsort(both[::-1])
    are_turns = order >= sums.shape[1]
    at = [0, 0]
    bounds = np.append(np.nonzero(np.diff(are_turns))[0] + 1, len(order))
    first = 0
    for last in bounds.tolist() if len(order) else ():
        kind = bool(are_turns[first])
        yield kind, at[kind], at[kind] + last - first
        at[kind] += last - first
        first = last
