"""Fold: a gang that one machine can hold needs no co-location and becomes part of a plain row (`docs/engine.md` §2)."""

from __future__ import annotations

import numpy as np

from bigfleet.engine.catalog.catalog import Domains, Profiles
from bigfleet.engine.catalog.classes import Classes
from bigfleet.engine.catalog.stamps import find_pair
from bigfleet.engine.decide.world import Pairs
from bigfleet.engine.demand.rows import Clusters, Rows
from bigfleet.engine.fleet.cells import (
    CONFIGURED,
    CONFIGURING,
    CREATING,
    IDLE,
    SPECULATIVE,
    Cells,
    Owners,
)
from bigfleet.engine.fleet.partitions import Units, unit_of_con
from bigfleet.engine.kernels.jit import I4, I8M, U1M, inner, kernel
from bigfleet.engine.kernels.pool import Pool


@inner
def covers(alloc: I8M, cls: int, overhead: I8M, cluster: int, want: I8M, row: int) -> bool:
    """Whether one machine of the class, less the cluster's overhead, holds the amounts of a row."""
    for d in range(want.shape[1]):
        have = alloc[cls, d] - overhead[cluster, d]
        if want[row, d] > 0 and want[row, d] > have:
            return False
    return True


@kernel
def fold_gangs(
    c: Clusters, rows: Rows, p: Profiles, classes: Classes, class_count: int, match: U1M, cells: Cells, owners: Owners,
    units: Units, lists: Pool, domains: Domains, pairs: Pairs, clusters: int, rebuild: I4,
) -> int:  # fmt: skip
    """Judges every gang; returns how many clusters must derive their entries anew (listed in `rebuild`)."""
    width = rows.agg.shape[1]
    found = 0
    total = np.zeros((1, width), np.int64)
    # Within a cluster gangs of one profile and size share their judgement.
    memo_agg = np.zeros((8, width), np.int64)
    memo = np.zeros((8, 3), np.int64)
    for cluster in range(clusters):
        changed = c.fresh[cluster] != 0
        if c.gangs[cluster] > 0 and c.counted[cluster] == 0:
            start = c.start[cluster]
            end = start + c.rows[cluster]
            memo_used = 0
            memo_next = 0
            memo_prof = -1
            i = start
            while i < end:
                prof = rows.prof[i]
                if p.same[prof] == -1:
                    i += 1
                    continue
                j = i
                for d in range(width):
                    total[0, d] = 0
                while j < end and rows.prof[j] == prof and rows.group[j] == rows.group[i]:
                    for d in range(width):
                        total[0, d] = min(4611686018427387904, total[0, d] + rows.agg[j, d])
                    j += 1
                if prof != memo_prof:
                    memo_prof = prof
                    memo_used = 0
                    memo_next = 0
                at = -1
                for k in range(memo_used):
                    equal = True
                    for d in range(width):
                        if memo_agg[k, d] != total[0, d]:
                            equal = False
                    if equal:
                        at = k
                if at < 0:
                    at = memo_next
                    memo_next = (memo_next + 1) % 8
                    memo_used = min(8, memo_used + 1)
                    for d in range(width):
                        memo_agg[at, d] = total[0, d]
                    memo[at, 0] = _bound(c, p, classes, match, cells, owners, units, lists, cluster, prof, total)
                    memo[at, 1] = _free(c, p, classes, class_count, match, cluster, prof, total)
                folded = memo[at, 0] != 0
                if not folded:
                    # Machines being made for it, with or without its gang's name.
                    fingerprint = p.text[prof]
                    pair = find_pair(pairs.table, pairs.fingerprint, pairs.group, fingerprint, rows.group[i])
                    folded = pair >= 0 and _creating(
                        c, p, classes, match, cells, pairs.head, pair, cluster, prof, total
                    )
                    if not folded:
                        pair = p.pair[p.folded[prof]]
                        folded = _creating(c, p, classes, match, cells, pairs.head, pair, cluster, prof, total)
                if not folded and memo[at, 1] != 0:
                    pair = find_pair(pairs.table, pairs.fingerprint, pairs.group, p.text[prof], rows.group[i])
                    folded = not _owned(
                        c,
                        rows,
                        p,
                        classes,
                        match,
                        cells,
                        owners,
                        units,
                        lists,
                        domains,
                        pairs.head,
                        pair,
                        cluster,
                        prof,
                        i,
                        j,
                        total,
                    )
                flag = 1 if folded else 0
                for k in range(i, j):
                    if rows.fold[k] != flag:
                        rows.fold[k] = flag
                        changed = True
                i = j
        if changed:
            rebuild[found] = cluster
            found += 1
    return found


@inner
def _bound(
    c: Clusters, p: Profiles, classes: Classes, match: U1M, cells: Cells, owners: Owners, units: Units, lists: Pool,
    cluster: int,     prof: int, total: I8M,
) -> int:  # fmt: skip
    """Whether a bound machine of the cluster holds the whole gang."""
    con = p.con[prof]
    owner = unit_of_con(units, cluster, con)
    for k in range(owners.start[owner], owners.start[owner] + owners.used[owner]):
        cell = lists.data[k]
        state = cells.state[cell]
        if (
            cells.count[cell] > 0
            and (state == CONFIGURED or state == CONFIGURING)
            and match[con, cells.cls[cell]] != 0
            and covers(classes.alloc, cells.cls[cell], c.overhead, cluster, total, 0)
        ):
            return 1
    return 0


@inner
def _free(
    c: Clusters, p: Profiles, classes: Classes, class_count: int, match: U1M, cluster: int, prof: int, total: I8M
) -> int:
    """Whether some free machine, held or not, holds the whole gang."""
    con = p.con[prof]
    for cls in range(class_count):
        if (
            match[con, cls] != 0
            and classes.count[cls, IDLE] + classes.count[cls, SPECULATIVE] > 0
            and covers(classes.alloc, cls, c.overhead, cluster, total, 0)
        ):
            return 1
    return 0


@inner
def _creating(
    c: Clusters, p: Profiles, classes: Classes, match: U1M, cells: Cells, pair_head: I4, pair: int, cluster: int,
    prof: int, total: I8M,
) -> bool:  # fmt: skip
    cell = pair_head[pair]
    con = p.con[prof]
    while cell >= 0:
        if (
            cells.count[cell] > 0
            and (cells.cluster[cell] == cluster or cells.cluster[cell] < 0)
            and match[con, cells.cls[cell]] != 0
            and covers(classes.alloc, cells.cls[cell], c.overhead, cluster, total, 0)
        ):
            return True
        cell = cells.next[cell]
    return False


@inner
def _owned(
    c: Clusters, rows: Rows, p: Profiles, classes: Classes, match: U1M, cells: Cells, owners: Owners, units: Units,
    lists: Pool, domains: Domains, pair_head: I4, pair: int, cluster: int, prof: int, first: int, last: int, total: I8M,
) -> bool:  # fmt: skip
    """Whether the gang's own machines cover it within one domain."""
    key = p.same[prof]
    if key < 0:
        return False
    con = p.con[prof]
    group = rows.group[first]
    width = rows.agg.shape[1]
    domains.meta[0] += 1
    mark = domains.meta[0]
    owner = unit_of_con(units, cluster, con)
    end = owners.start[owner] + owners.used[owner]
    k = owners.start[owner]
    creating = pair_head[pair] if pair >= 0 else -1
    while True:
        if k < end:
            cell = lists.data[k]
            k += 1
            state = cells.state[cell]
            if group == 0 or cells.group[cell] != group or (state != CONFIGURED and state != CONFIGURING):
                continue
        elif creating >= 0:
            cell = creating
            creating = cells.next[creating]
            if cells.state[cell] != CREATING or (cells.cluster[cell] != cluster and cells.cluster[cell] >= 0):
                continue
        else:
            break
        cls = cells.cls[cell]
        if cells.count[cell] <= 0 or match[con, cls] == 0 or classes.dom[cls, key] < 0:
            continue
        fits = False
        for row in range(first, last):
            if covers(classes.alloc, cls, c.overhead, cluster, rows.unit, row):
                fits = True
        if not fits:
            continue
        dom = classes.dom[cls, key]
        if domains.mark[dom] != mark:
            domains.mark[dom] = mark
            for d in range(width):
                domains.own[dom, d] = 0
        enough = True
        for d in range(width):
            domains.own[dom, d] += cells.count[cell] * max(0, classes.alloc[cls, d] - c.overhead[cluster, d])
            if domains.own[dom, d] < total[0, d]:
                enough = False
        if enough:
            return True
    return False
