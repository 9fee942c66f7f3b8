"""What nobody can beat: linear programs over classes of pods and kinds of machines, solved by HiGHS.

Owns the lower bounds. Machines may be fractional and pods divided among kinds, so the bound is never above the cheapest
possible fleet. Dual feasible functions (Fekete and Schepers) keep it honest where sums lie: a pod of 5 cores on a
machine of 8 counts for all of it, three thirds and a bit count for two. Nothing here packs; that is the greedy's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_matrix, csr_matrix

from bench.quality.demand import NOBODY, Classes, Trace
from bench.quality.kinds import RESOURCES, UNLIMITED, Flags, Floats, Ints, Kinds, undominated

SAMPLES_S = 1200.0
_ROUNDINGS = range(1, 9)


@dataclass(frozen=True, slots=True)
class Bound:
    """Dollars an hour of the cheapest fractional fleet, machines and interruptions together."""

    dollars: float
    machines: Floats


def allowed(classes: Classes, kinds: Kinds) -> Flags:
    """(class, kind): does one pod fit, and may it: work that must not be interrupted never runs on spot."""
    fits = (classes.request[:, None, :] <= kinds.capacity[None, :, :]).all(2)
    return fits & ~(np.isinf(classes.interruption)[:, None] & kinds.spot[None, :])


def rounded_share(request: int, capacity: int, steps: int) -> float:
    """A dual feasible function: no set of requests that fits a machine has shares that sum above 1."""
    if (steps + 1) * request % capacity == 0:
        return request / capacity
    return ((steps + 1) * request // capacity) / steps


class Program:
    """The program of one family: built once for its classes and kinds, solved for many counts of pods."""

    def __init__(self, classes: Classes, kinds: Kinds, clusters: int = 1) -> None:
        rows = undominated(kinds)
        self.kinds, self._rows, self._all = kinds.only(rows), rows, len(kinds)
        self.classes, self.clusters = classes, clusters

    def solve(self, counts: Ints) -> Bound:
        """`counts`: pods per class, or a row of them per cluster. What is reserved is paid for, used or not."""
        table = counts.reshape(self.clusters, -1)
        present = tuple(np.flatnonzero(table.sum(0)).tolist())
        if not present:
            return Bound(self._base_dollars(), np.zeros(self._all))
        cost, upper, limits, equal, places = self._program(present)
        wanted = table[:, present].reshape(-1)
        found = linprog(cost, A_ub=upper, b_ub=limits, A_eq=equal, b_eq=wanted, method="highs")
        if found.status != 0:
            raise ValueError(f"the bound of {len(present)} classes has no solution: {found.message}")
        machines = np.zeros(self._all)
        np.add.at(machines, self._rows[places], found.x[: len(places)])
        return Bound(float(found.fun) + self._base_dollars(), machines)

    def _base_dollars(self) -> float:
        limited = self.kinds.limit < UNLIMITED
        return float((self.kinds.price * self.kinds.limit)[limited].sum())

    @lru_cache(maxsize=4096)  # noqa: B019 - programs live as long as the run
    def _program(self, present: tuple[int, ...]) -> tuple[Floats, csr_matrix, Floats, csr_matrix, Ints]:
        kinds, clusters = self.kinds, self.clusters
        chosen = np.array(present, np.int64)
        request = self.classes.request[chosen]
        may = allowed(self.classes, kinds)[chosen]
        if not may.any(1).all():
            row = int(np.flatnonzero(~may.any(1))[0])
            raise ValueError(f"a pod that requests {request[row].tolist()} fits no kind; every class must fit one")
        pairs_class, pairs_kind = np.nonzero(may)
        pairs, count = len(pairs_class), len(kinds)
        limited = kinds.limit < UNLIMITED
        # Columns: machines per (cluster, kind), then pods per (cluster, class and kind that may meet).
        machine_cost = np.where(limited, 0.0, kinds.price)
        interruption = self.classes.interruption[chosen]
        risk = kinds.probability[pairs_kind]
        pod_cost = np.where(risk > 0, risk * np.where(risk > 0, interruption[pairs_class], 0.0), 0.0)
        cost = np.concatenate([np.tile(machine_cost, clusters), np.tile(pod_cost, clusters)])
        shares = _share_rows(request, kinds, pairs_class, pairs_kind, self.classes.exclusive[chosen])
        row_at: list[Ints] = []
        column_at: list[Ints] = []
        values: list[Floats] = []
        rows = 0
        for cluster in range(clusters):
            machine, pod = cluster * count, clusters * count + cluster * pairs
            for kind, share in shares:
                used = np.flatnonzero((pairs_kind == kind) & (share > 0))
                if not len(used):
                    continue
                row_at.append(np.full(len(used) + 1, rows))
                column_at.append(np.concatenate([[machine + kind], pod + used]))
                values.append(np.concatenate([[-1.0], share[used]]))
                rows += 1
        limits = [0.0] * rows
        for kind in np.flatnonzero(limited):
            row_at.append(np.full(clusters, rows))
            column_at.append(np.arange(clusters) * count + kind)
            values.append(np.ones(clusters))
            limits.append(float(kinds.limit[kind]))
            rows += 1
        width = clusters * (count + pairs)
        upper = coo_matrix(
            (np.concatenate(values), (np.concatenate(row_at), np.concatenate(column_at))), shape=(rows, width)
        ).tocsr()
        each = np.arange(clusters).repeat(pairs)
        equal = coo_matrix(
            (
                np.ones(clusters * pairs),
                (each * len(chosen) + np.tile(pairs_class, clusters), clusters * count + np.arange(clusters * pairs)),
            ),
            shape=(clusters * len(chosen), width),
        ).tocsr()
        return cost, upper, np.array(limits), equal, np.tile(np.arange(count), clusters)


def _share_rows(
    request: Ints, kinds: Kinds, pairs_class: Ints, pairs_kind: Ints, exclusive: Ints
) -> list[tuple[int, Floats]]:
    """For each kind, every way to say that what is on a machine fits: plain shares, rounded ones, tokens."""
    rows: list[tuple[int, Floats]] = []
    for kind in range(len(kinds)):
        here = np.flatnonzero(pairs_kind == kind)
        seen: set[bytes] = set()
        for resource in range(RESOURCES):
            capacity = int(kinds.capacity[kind, resource])
            if not capacity:
                continue
            amounts = request[pairs_class[here], resource]
            variants = [amounts / capacity]
            variants += [
                np.array([rounded_share(int(amount), capacity, steps) for amount in amounts]) for steps in _ROUNDINGS
            ]
            for variant in variants:
                if (variant > 0).any() and variant.tobytes() not in seen:
                    seen.add(variant.tobytes())
                    share = np.zeros(len(pairs_kind))
                    share[here] = variant
                    rows.append((kind, share))
        for token in np.unique(exclusive[exclusive != NOBODY]):
            rows.append((kind, np.where((pairs_kind == kind) & (exclusive[pairs_class] == token), 1.0, 0.0)))
    return rows


@dataclass(frozen=True, slots=True)
class BoundOverTime:
    """Dollars of a whole replay: what serves, sampled, and what must boot for every rise."""

    dollars: float
    boot_dollars: float
    times: Floats
    hourly: Floats
    fewest: int


def over_time(trace: Trace, program: Program, boot_s: float, every: float = SAMPLES_S) -> BoundOverTime:
    """The bound of every pod as if it had started when it arrived; a rise of the bound pays its boot.

    Dips shorter than the boot are cheaper kept than booted again, and sampling finds none of them; what serves is the
    mean of samples in the middle of equal stretches.
    """
    times = np.arange(every / 2, trace.horizon, every)
    shared = program.clusters > 1
    hourly, fewest = [], len(trace)
    for at in times:
        rows = [trace.counts(at, cluster) for cluster in range(program.clusters)] if shared else [trace.counts(at)]
        hourly.append(program.solve(np.array(rows)).dollars)
        fewest = min(fewest, int(sum(row.sum() for row in rows)))
    levels = np.array(hourly)
    rises = np.diff(levels, prepend=program._base_dollars()).clip(min=0).sum()
    boot = float(rises * boot_s / 3600)
    return BoundOverTime(float(levels.mean() * trace.horizon / 3600) + boot, boot, times, levels, fewest)
