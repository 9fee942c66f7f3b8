"""The prototype's purchase rule (S2): which machines to buy for units without room, judged by what they carry.

Owns the value of a unit, the fill of a candidate and the choice among candidates. Must never look at nodes: what has
room or is coming is taken off the counts before. Vectorised over kinds; one pass over classes fills every candidate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

from bench.quality.bounds import allowed
from bench.quality.demand import NOBODY, Classes
from bench.quality.kinds import GPU, UNLIMITED, Flags, Floats, Ints, Kinds


@dataclass(frozen=True, slots=True)
class PurchaseRules:
    """What can be tuned. `values`: "alone" is S2's cheapest fractional cost, "priced" sums resource prices."""

    values: str = "alone"
    near: float = 0.0
    second_pass: bool = True


@dataclass(frozen=True, slots=True)
class Purchase:
    """One machine of a kind and how many units of each class it was bought for."""

    kind: int
    carries: Ints


class Buyer:
    """Plans purchases for one family's classes and kinds."""

    def __init__(
        self, classes: Classes, kinds: Kinds, rules: PurchaseRules | None = None, may: Flags | None = None
    ) -> None:
        self.classes, self.kinds, self.rules = classes, kinds, rules or PurchaseRules()
        self.may = allowed(classes, kinds) if may is None else may
        # What is reserved is paid for: using it costs next to nothing.
        self.price = np.where(kinds.limit < UNLIMITED, 0.01 * kinds.price, kinds.price)
        plain = (classes.request[:, GPU] == 0)[:, None] & kinds.gpu[None, :]
        # Work without GPUs buys no GPU machine unless nothing else fits.
        fits_else = (self.may & ~plain).any(1)
        self.may_buy = self.may & ~(plain & fits_else[:, None])
        self.penalty = np.where(np.isinf(classes.interruption), 0.0, classes.interruption)
        self.alone = self._alone()
        self.by_value = np.argsort(-self.alone, kind="stable")

    def _alone(self) -> Floats:
        """Per class, the least a fraction of a machine for one unit costs, risk included."""
        with np.errstate(divide="ignore", invalid="ignore"):
            share = self.classes.request[:, None, :] / self.kinds.capacity[None, :, :]
        share = np.nan_to_num(share, nan=0.0, posinf=np.inf).max(2)
        self.share = share
        cost = share * self.kinds.price + self.kinds.probability * self.penalty[:, None]
        return np.where(self.may_buy, cost, np.inf).min(1)

    def values(self, counts: Ints) -> Floats:
        if self.rules.values == "alone":
            return self.alone
        return self._priced(counts)

    def _priced(self, counts: Ints) -> Floats:
        """Values by resource prices that no kind's capacity is worth more than it costs: the dual of demand's sums."""
        needed = counts > 0
        wanted = (counts[:, None] * self.classes.request).sum(0).astype(float)
        usable = self.may_buy[needed].any(0)
        scale = np.maximum(self.kinds.capacity.max(0), 1).astype(float)
        found = linprog(
            -(wanted / scale), A_ub=self.kinds.capacity[usable] / scale, b_ub=self.kinds.price[usable], method="highs"
        )
        prices = found.x / scale
        return np.maximum(self.classes.request @ prices, 1e-9) + 0.5 * (
            self.alone - np.maximum(self.classes.request @ prices, 1e-9)
        ).clip(min=0)

    def plan(self, counts: Ints, limit: Ints | None = None) -> list[Purchase]:
        """Machines for all of `counts`, within what may be had of each kind."""
        rest = counts.astype(np.int64).copy()
        stock = (self.kinds.limit if limit is None else limit).copy()
        value = self.values(counts)
        bought: list[Purchase] = []
        order = np.argsort(-value, kind="stable")
        stuck = np.zeros(len(rest), np.bool_)
        while True:
            waiting = order[(rest[order] > 0) & ~stuck[order]]
            if not len(waiting):
                break
            entry = int(waiting[0])
            candidates = np.flatnonzero(self.may_buy[entry] & (stock > 0))
            if not len(candidates):
                stuck[entry] = True
                continue
            carried = self._fill(entry, candidates, rest, order)
            worth = carried @ value
            cost = self.price[candidates] + self.kinds.probability[candidates] * (carried @ self.penalty)
            ratio = worth / cost
            near = np.flatnonzero(ratio >= ratio.max() * (1 - self.rules.near))
            best = near[np.lexsort((candidates[near], self.price[candidates[near]]))[0]]
            kind, fill = int(candidates[best]), carried[best]
            used = fill > 0
            times = int(min((rest[used] // fill[used]).min(), stock[kind]))
            for _each in range(times):
                bought.append(Purchase(kind, fill.copy()))
            stock[kind] -= times
            rest -= fill * times
        if self.rules.second_pass:
            bought = self._shrunk(bought)
        return bought

    def _fill(self, entry: int, candidates: Ints, pool: Ints, order: Ints) -> Ints:
        """Units on each candidate: the entry at hand, then riders from the most valuable down."""
        room = self.kinds.capacity[candidates].copy()
        carried = np.zeros((len(candidates), len(pool)), np.int64)
        tokens: dict[int, Flags] = {}
        for cls in (entry, *(int(cls) for cls in order if pool[cls] > 0 and cls != entry)):
            request = self.classes.request[cls]
            needed = request > 0
            n = np.minimum((room[:, needed] // request[needed]).min(1), pool[cls])
            n = np.where(self.may[cls, candidates], n, 0)
            token = int(self.classes.exclusive[cls])
            if token != NOBODY:
                n = np.where(tokens.get(token, np.zeros(len(candidates), np.bool_)), 0, np.minimum(n, 1))
                tokens[token] = tokens.get(token, np.zeros(len(candidates), np.bool_)) | (n > 0)
            if self.penalty[cls] > 0 and cls != entry:
                # A rider whose risk on this machine is dearer than its value stays behind.
                n = np.where(self.kinds.probability[candidates] * self.penalty[cls] < self.alone[cls], n, 0)
            carried[:, cls] = n
            room -= n[:, None] * request
        return carried

    def _shrunk(self, bought: list[Purchase]) -> list[Purchase]:
        """A second look: each machine becomes the cheapest kind that holds what it carries."""
        result = []
        for each in bought:
            used = np.flatnonzero(each.carries)
            total = each.carries @ self.classes.request
            fits = (self.kinds.capacity >= total).all(1) & self.may[used].all(0) & (self.kinds.limit >= UNLIMITED)
            fits &= self.may_buy[used].any(0)
            risk = self.kinds.probability * float(each.carries @ self.penalty)
            cost = np.where(fits, self.price + risk, np.inf)
            cost[each.kind] = self.price[each.kind] + risk[each.kind]
            cheapest = int(np.argmin(cost))
            result.append(Purchase(cheapest, each.carries))
        return result

    def dollars(self, bought: list[Purchase]) -> float:
        """An hour of a purchase, risk included."""
        return float(
            sum(
                self.price[each.kind] + self.kinds.probability[each.kind] * float(each.carries @ self.penalty)
                for each in bought
            )
        )
