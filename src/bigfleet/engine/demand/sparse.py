"""What few counted rows say: units per domain of strict spreads and gangs, and tokens of units that exclude each other.

Kept by the place of a row among its cluster's rows, as its roll-up left them (`docs/engine.md` P1).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.demand.rollups import BAD_DOMAIN
from bigfleet.engine.placement import Counted


class Sparse(NamedTuple):
    """Units by domain, and tokens, of the rows that have any."""

    domains: dict[int, dict[str, int]]
    tokens: dict[int, frozenset[str]]


NOTHING_SAID = Sparse({}, {})


def unsound_domains(said: Counted, rows: int) -> NDArray[np.uint8]:
    """The code of rows that claim less than no unit in some domain, 0 of the others."""
    bad = np.zeros(rows, np.uint8)
    for row, domains in said.domain_units.items():
        bad[row] = BAD_DOMAIN if any(units < 0 for _, units in domains) else 0
    return bad


def read_sparse(said: Counted, origin: NDArray[np.int32]) -> Sparse:
    """Rows that were merged say what they said together; `origin` is the merged row of each, negative for rejected
    ones."""
    found = Sparse({}, {})
    for row, domains in said.domain_units.items():
        merged = int(origin[row])
        if merged >= 0:
            units = found.domains.setdefault(merged, {})
            for domain, count in domains:
                units[domain] = units.get(domain, 0) + count
    for row, tokens in said.exclusive.items():
        merged = int(origin[row])
        if merged >= 0 and tokens:
            found.tokens[merged] = found.tokens.get(merged, frozenset()) | frozenset(tokens)
    return found


def reordered(said: Sparse, places: NDArray[np.int64]) -> Sparse:
    """What rows say once they lie in another order; `places` are their old ones."""
    new = {int(old): at for at, old in enumerate(places.tolist())}
    return Sparse(
        {new[row]: domains for row, domains in said.domains.items()},
        {new[row]: tokens for row, tokens in said.tokens.items()},
    )
