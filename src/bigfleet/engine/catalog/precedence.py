"""Precedence: the rank of each profile's priority and penalties among all that profiles have, the most urgent first.

Ranks are what kernels compare instead of three numbers. Owns which triples are ranked; the ranks are the catalog's.
"""

from __future__ import annotations

from bisect import bisect_left

from bigfleet.engine.kernels.jit import I4, kernel
from bigfleet.model.profile import Profile


class Precedence:
    """Ranked triples of (priority, interruption bucket, reclamation bucket), each negated: the largest comes first."""

    def __init__(self) -> None:
        self._triples: list[tuple[int, int, int]] = []

    def place(self, profile: Profile, ranks: I4, number: int) -> None:
        """Ranks profile `number`; those before it that come after a new triple step back."""
        triple = _triple(profile)
        rank = bisect_left(self._triples, triple)
        if rank == len(self._triples) or self._triples[rank] != triple:
            self._triples.insert(rank, triple)
            _step_back(ranks, number, rank)
        ranks[number] = rank

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
