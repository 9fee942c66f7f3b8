"""Everything a deciding kernel sees, as one value: the stores and the scratch of the running step.

Owns the scratch: lists of matching cells, the log of credit, the log of acquisitions, ordered free supply.
"""

from __future__ import annotations

from typing import NamedTuple

from bigfleet.engine.catalog.catalog import Domains, Profiles
from bigfleet.engine.catalog.classes import Classes
from bigfleet.engine.demand.rows import Clusters, Entries, Parts, Rows
from bigfleet.engine.fleet.cells import Cells, Owners
from bigfleet.engine.fleet.partitions import Units
from bigfleet.engine.kernels.ids import Ids
from bigfleet.engine.kernels.jit import F8, I4, I4M, I8, I8M, U1, U1M
from bigfleet.engine.kernels.pool import Pool
from bigfleet.engine.kernels.texts import Texts
from bigfleet.engine.kernels.view import View, view

BUCKETS = 28

# Places in `Lists.meta` and the only place in the logs' `meta`.
CELLS_USED, LISTS_USED, EPOCH = 0, 1, 2
LOG_USED = 0


@view
class Pairs(View):
    """Attributions and the Creating cells that carry them."""

    table: I4
    fingerprint: I4
    group: I4
    head: I4


@view
class Bindings(View):
    """What Configured and Configuring cells were bound for."""

    priority: I8
    interruption: F8
    reclamation: F8


@view
class Lists(View):
    """Chains of cells in order: list l starts at `head[l]`, goes on at `next[i]` and ends at -1."""

    cell: I4
    next: I4
    head: I4
    con_list: I4
    con_mark: I8
    meta: I8


@view
class Log(View):
    """Who took how many machines of which cell, in the order in which it happened."""

    entry: I4
    cell: I4
    n: I4
    meta: I8


@view
class Acquired(View):
    """Free machines taken: members `first .. first + n` of a cell, in id order."""

    entry: I4
    cell: I4
    first: I4
    n: I4
    meta: I8


@view
class Free(View):
    """Lists of free cells by constraint set (and penalty bucket), -1 until somebody asks."""

    idle: I4
    speculative: I4M
    order: I4M
    ready: U1
    cons: I4
    cost: F8
    meta: I8


@view
class Scratch(View):
    """Room for one entry's candidates and for sums."""

    cell: I4
    dom: I4
    next: I4
    n: I4
    want: I8
    sums: I8M


@view
class Universe(View):
    """Domains and counts of spread rows that stay short, from Assign to Preempt: entry i of the pending order has
    `dom[first[i] : first[i] + n[i]]`."""

    dom: I4
    machines: I8
    first: I4
    n: I4
    meta: I8


class Rules(NamedTuple):
    """The numbers of policy and conditions that kernels decide by, and the instant."""

    now: int
    acquire: bool
    cycle: int
    park_after: int
    reprobe_every: int
    candidates: int


@view
class World(View):
    c: Clusters
    rows: Rows
    e: Entries
    parts: Parts
    p: Profiles
    k: Classes
    match: U1M
    cells: Cells
    owners: Owners
    units: Units
    held: Pool
    ids: Ids
    texts: Texts
    dom: Domains
    pairs: Pairs
    bind: Bindings
    lists: Lists
    log: Log
    late: Log
    got: Acquired
    free: Free
    uni: Universe
    tmp: Scratch
