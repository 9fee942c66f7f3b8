"""Precedence: the rank of each profile's priority and penalties among all that profiles have, the most urgent first.

Ranks are what kernels compare instead of three numbers. Owns which triples are ranked; the ranks are the catalog's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from bigfleet.engine.kernels.jit import I4, kernel
from bigfleet.model.profile import Profile


class Precedence:
    """Ranked triples of (priority, interruption bucket, reclamation bucket), each negated: the largest comes first."""

    def __init__(self) -> None:
        self._triples: list[tuple[int, int, int]] = []

    def place(self, profiles: Sequence[Profile], ranks: I4, first: int) -> None:
        """Ranks profiles from number `first` on; those before them that come after a new triple step back."""
        triples = [_triple(profile) for profile in profiles]
        known = self._triples
        for triple in sorted(set(triples)):
            rank = bisect_left(known, triple)
            if rank == len(known) or known[rank] != triple:
                known.insert(rank, triple)
                _step_back(ranks, first, rank)
        rank_of = {triple: bisect_left(known, triple) for triple in set(triples)}
        ranks[first : first + len(triples)] = [rank_of[triple] for triple in triples]

    def validate(self, profiles: list[Profile], ranks: I4) -> None:
        """Every profile has the rank of its triple, and no other triple is ranked."""
        triples = [_triple(profile) for profile in profiles]
        assert self._triples == sorted(set(triples)), "precedence ranks what no profile has"
        for number, triple in enumerate(triples):
            assert self._triples[int(ranks[number])] == triple, f"profile {number} is misplaced"


def _triple(profile: Profile) -> tuple[int, int, int]:
    return -profile.priority, -profile.interruption_bucket, -profile.reclamation_bucket


@kernel
def _step_back(ranks: I4, count: int, rank: int) -> None:
    for i in range(count):
        if ranks[i] >= rank:
            ranks[i] += 1
