"""Said: what nodes of one (cluster, kind) really have to give, each distinct vector once and counted (P8).

A node's real allocatable repeats for nearly all nodes of a kind, so reports point here. The smallest of a (cluster,
kind) is taken over its few vectors when somebody asks. A kind is an offer of the catalog.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.kernels.columns import grown, made, room, widened
from bigfleet.engine.kernels.jit import I4, I8, I8M, inner, kernel
from bigfleet.engine.kernels.view import View, view

# Places in `meta`.
_USED, _FREE = 0, 1


@view
class Said(View):
    """Vector n is `amount[n]`, said by `count[n]` reports; those of one bucket are chained through `next`."""

    cluster: I4
    offer: I4
    count: I4
    next: I4
    amount: I8M
    heads: I4
    free: I4
    meta: I8


@inner
def _bucket(said: Said, cluster: int, offer: int) -> int:
    return (int(cluster) * 7919 + int(offer) * 31) & (len(said.heads) - 1)


@inner
def say(said: Said, cluster: int, offer: int, columns: I8, amounts: I8M, at: int) -> int:
    """The number of the vector in row `at` of a report's amounts, counted once more; room must have been reserved."""
    bucket = _bucket(said, cluster, offer)
    n = said.heads[bucket]
    while n >= 0:
        if said.cluster[n] == cluster and said.offer[n] == offer and _equal(said, n, columns, amounts, at):
            said.count[n] += 1
            return n
        n = said.next[n]
    if said.meta[_FREE] > 0:
        said.meta[_FREE] -= 1
        n = said.free[said.meta[_FREE]]
    else:
        n = said.meta[_USED]
        said.meta[_USED] += 1
    said.cluster[n] = cluster
    said.offer[n] = offer
    said.count[n] = 1
    said.amount[n, :] = 0
    for d in range(len(columns)):
        said.amount[n, columns[d]] = amounts[at, d]
    said.next[n] = said.heads[bucket]
    said.heads[bucket] = n
    return n


@inner
def _equal(said: Said, n: int, columns: I8, amounts: I8M, at: int) -> bool:
    total = 0
    for d in range(said.amount.shape[1]):
        total += 1 if said.amount[n, d] != 0 else 0
    for d in range(len(columns)):
        if said.amount[n, columns[d]] != amounts[at, d]:
            return False
        if amounts[at, d] != 0:
            total -= 1
    return total == 0


@inner
def unsay(said: Said, n: int) -> None:
    """A report no longer says this vector; the last one takes it along."""
    said.count[n] -= 1
    if said.count[n] > 0:
        return
    bucket = _bucket(said, said.cluster[n], said.offer[n])
    if said.heads[bucket] == n:
        said.heads[bucket] = said.next[n]
    else:
        before = said.heads[bucket]
        while said.next[before] != n:
            before = said.next[before]
        said.next[before] = said.next[n]
    said.free[said.meta[_FREE]] = n
    said.meta[_FREE] += 1


@inner
def lower_to_said(said: Said, cluster: int, offer: int, amounts: I8) -> None:
    """Lowers the amounts to the smallest that any report of this cluster's nodes of this kind says (P8)."""
    n = said.heads[_bucket(said, cluster, offer)]
    while n >= 0:
        if said.cluster[n] == cluster and said.offer[n] == offer:
            for d in range(min(len(amounts), said.amount.shape[1])):
                amounts[d] = min(amounts[d], said.amount[n, d])
        n = said.next[n]


@kernel
def rehash_said(said: Said) -> None:
    """Fills empty buckets with the vectors there are."""
    for n in range(said.meta[_USED]):
        if said.count[n] > 0:
            bucket = _bucket(said, said.cluster[n], said.offer[n])
            said.next[n] = said.heads[bucket]
            said.heads[bucket] = n


@kernel
def smallest(said: Said, cluster: int, offer: int, amounts: I8) -> None:
    """`lower_to_said` for Python."""
    lower_to_said(said, cluster, offer, amounts)


class SaidStore:
    """Owns the vectors."""

    def __init__(self) -> None:
        self.v = made(Said, 16)._replace(heads=np.full(16, -1, np.int32))

    def fit(self, more: int, width: int) -> None:
        """Room for so many new vectors of so many resources."""
        v = self.v
        used = int(v.meta[_USED]) - int(v.meta[_FREE]) + more
        size = room(len(v.count), used)
        if size > len(v.count):
            kept = {"heads": v.heads, "meta": v.meta}
            v = Said(**{name: kept[name] if name in kept else grown(c, size) for name, c in v._asdict().items()})
        v = v._replace(amount=widened(v.amount, width))
        self.v = v
        if used > 2 * len(v.heads):
            self._rehash(1 << (used - 1).bit_length())

    def renumber(self, clusters: NDArray[np.int32], offers: NDArray[np.int32], resources: NDArray[np.int64]) -> None:
        """New numbers by old ones, and these resources only."""
        v = self.v
        v.cluster[:], v.offer[:] = clusters[v.cluster], offers[v.offer]
        amount = np.ascontiguousarray(v.amount[:, resources]) if len(resources) else np.zeros((len(v.count), 1), "i8")
        self.v = v._replace(amount=amount)
        self._rehash(len(v.heads))

    def columns_in_use(self) -> NDArray[np.int64]:
        v = self.v
        live = v.count[: int(v.meta[_USED])] > 0
        return np.nonzero(v.amount[: int(v.meta[_USED])][live].max(axis=0, initial=0))[0]

    def _rehash(self, buckets: int) -> None:
        self.v = self.v._replace(heads=np.full(buckets, -1, np.int32))
        rehash_said(self.v)
