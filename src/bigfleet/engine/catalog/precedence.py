"""Precedence: the rank of each profile's priority and penalties among all that profiles have, the most urgent first.

Ranks are what kernels compare instead of three numbers. Owns which of them are ranked; the ranks are the catalog's.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.kernels.jit import I4, kernel
from bigfleet.model.penalty import BUCKETS
from bigfleet.model.profile import Profile

_BUCKETS = len(BUCKETS)


class Precedence:
    """Ranked codes of (priority, interruption bucket, reclamation bucket), negated: the largest comes first."""

    def __init__(self) -> None:
        self._codes: list[int] = []

    def place(self, codes: NDArray[np.int64], ranks: I4, first: int) -> None:
        """Ranks profiles from number `first` on; those before them that come after a new code step back."""
        new, which = np.unique(codes, return_inverse=True)
        known = self._codes
        for code in new.tolist():
            rank = bisect_left(known, code)
            if rank == len(known) or known[rank] != code:
                known.insert(rank, code)
                _step_back(ranks, first, rank)
        ranks[first : first + len(codes)] = np.searchsorted(known, new)[which]

    def validate(self, profiles: list[Profile], ranks: I4) -> None:
        """Every profile has the rank of its code, and no other code is ranked."""
        triples = [(each.priority, each.interruption_bucket, each.reclamation_bucket) for each in profiles]
        codes = codes_of(*np.array(triples, np.int64).reshape(-1, 3).T).tolist()
        assert self._codes == sorted(set(codes)), "precedence ranks what no profile has"
        for number, code in enumerate(codes):
            assert self._codes[int(ranks[number])] == code, f"profile {number} is misplaced"


def codes_of(
    priority: NDArray[np.int64], interruption: NDArray[np.int64], reclamation: NDArray[np.int64]
) -> NDArray[np.int64]:
    """A priority and two buckets as one number that compares as they do, negated."""
    return -((priority * _BUCKETS + interruption) * _BUCKETS + reclamation)


@kernel
def _step_back(ranks: I4, count: int, rank: int) -> None:
    for i in range(count):
        if ranks[i] >= rank:
            ranks[i] += 1
