"""The book of a step: counted entries that lack room, the lots their units may go on and the blocks they may take.

Owns the columns and how they grow; knows no rule. Nothing in it outlives a step. A *turn* is a counted entry of which
something is stranded, in the order of service; a *portion* is one of its rows, or all of a gang that needs one host.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigfleet.engine.fleet.placing import Slots
from bigfleet.engine.kernels.columns import grown, made
from bigfleet.engine.kernels.jit import F8, I4, I4M, I8, I8M, U1
from bigfleet.engine.kernels.pool import Pool
from bigfleet.engine.kernels.view import View, view
from bigfleet.engine.nodes.said import Said

# Kinds of turns: as entries', and gangs that need one host.
HOST = 3
# What a lot is: a part of one with units on it, machines of a cluster, or machines that name none.
REMAINDER, NAMED, UNNAMED = 0, 1, 2
# Where units of a lot count.
COMING, ACQUIRED, AWAITING = 0, 1, 2
# Tiers of blocks (P20).
REOPEN, PAID_IDLE, PAID_DRAINING, PAID_EMPTY, BUY = 0, 1, 2, 3, 4
# Places in `meta`.
LOTS, MEMBERS, TOKENS, BLOCKS, PURCHASES, FILLS, JOURNAL, FULL, TRIAL, FOUND, FILLED, PODS, LOOSE, DROPPED, DOMAINS = (
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
)  # fmt: skip
MARK, CHAIN, UNIVERSES, FILL_TOKEN, MOST_TOKENS, LOOK, INDEXED = 15, 16, 17, 18, 19, 20, 21
# Whether some turn so far lacks units and may preempt; whether the gang at hand looks at all that drains (P28).
SHORT, PATIENT = 22, 23
# Machines with devices that were filled anew in this step (P23).
REFILLED = 24
# Places in `money`: of the fill at hand, and what a gang's trial has spent.
VALUE, RISK, SPENT = 0, 1, 2
# Bits of `mark`, by machine: promised by (c), taken by (d), reopened by (a).
PROMISED, TAKEN, REOPENED = 1, 2, 4


class PlacementRules(NamedTuple):
    """The numbers of policy that these kernels decide by, and the instant."""

    now: int
    remainders: int
    riders: int
    within: float
    paid_ratio: float
    reopen_ratio: float
    risk_limit: float
    second_pass_from: int
    refills: int
    refilled: int


@view
class Turns(View):
    """`may`: may acquire; `able`: may preempt; `key`: the label column of its domains, -1 without; `next`: the next
    plain turn of its cluster; `uni`, `unis`: its stretch of `Universes`; `on_coming`: turns in the order of P16."""

    entry: I4
    cluster: I4
    prof: I4
    con: I4
    kind: U1
    first: I4
    n: I4
    may: U1
    able: U1
    ok: U1
    domain: I4
    key: I4
    skew: I8
    dollars: F8
    next: I4
    uni: I4
    unis: I4
    on_coming: I4


@view
class Portions(View):
    """Units that lack room and what was found for them; `missing` is what Assign left."""

    turn: I4
    part: I4
    unit: I8M
    stranded: I8
    coming: I8
    until: I8
    acquired: I8
    awaiting: I8
    missing: I8
    value: F8
    device: U1
    token: I4


@view
class Lots(View):
    """Machines with equal room left: `n` members from `first` on. `own` is the turn of the gang they were bought for,
    -1 where anybody may use them; `devices`: only units that ask for some may; `fits` is scratch of whoever looks."""

    cls: I4
    cluster: I4
    left: I8M
    token: I4
    source: U1
    until: I8
    rank: U1
    closed: U1
    first: I4
    n: I4
    next: I4
    own: I4
    devices: U1
    slack: I8
    fits: I8


@view
class Blocks(View):
    """What may be taken: a cell's unclaimed members, or (`cell` -1) `n` members from `first` on, `taken` of them gone.
    `least` is the smallest id when Assign began; `left` a row of `spare` and `carried` what its pods are worth
    (reopened nodes only); `chain` leads to the next block of its domain."""

    tier: U1
    cls: I4
    cell: I4
    first: I4
    n: I4
    taken: I4
    least: I4
    cluster: I4
    token: I4
    scarce: U1
    next: I4
    spare: I8M
    carried: F8
    score: F8
    asked: I8
    chain: I4


@view
class Purchases(View):
    """What was taken, in order: `n` members from `first` on, of which `lot` is what is left, filled with `fills`."""

    turn: I4
    tier: U1
    first: I4
    n: I4
    lot: I4
    cell: I4
    fill: I4
    fills: I4


@view
class Kinds(View):
    """What the rules ask of a class; resources in descending text order."""

    alive: U1
    device: U1
    pods: U1
    owned: U1
    descending: I8


@view
class Backoffs(View):
    """Offers closed to one turn of a cluster, or (-1) to all of it."""

    cluster: I4
    offer: I4
    turn: I4


@view
class Scratch(View):
    """Room for candidates, one fill and who may ride in it, one turn's domains with their first blocks, and what
    undoing a trial takes."""

    lot: I4
    block: I4
    portion: I4
    rider: I4
    able: I4
    behind: I4
    units: I8
    left: I8M
    count: I8
    seen: I8
    inside: I8
    dom: I4
    head: I4
    kind: U1
    a: I4
    b: I8
    c: I8
    d: I8


@view
class Universes(View):
    """Domains of spread turns and units in each."""

    dom: I4
    units: I8


@view
class Book(View):
    """By cluster: the chain of `remainders`, how many are open (-1: to be counted) and which closes first. By cluster
    and resource: no open remainder has more left than `most_left`, and no unit of a plain row takes less than
    `least_unit`. By tier and constraint set: groups of blocks in `con_group` that match, `con_first .. con_last`. By
    group: its blocks in `group_block`, `group_first .. group_last`, how many of them are scarce, and a class of it. By
    cluster: whether all blocks of a group are `alike` to it; `looked_at` is scratch by offer. `again` are the purchases
    of the second pass, `short` the turns that Assign left short and that may preempt."""

    t: Turns
    q: Portions
    lots: Lots
    blocks: Blocks
    bought: Purchases
    kinds: Kinds
    shut: Backoffs
    s: Scratch
    uni: Universes
    slots: Slots
    members: Pool
    said: Said
    token: I4
    token_next: I4
    fill_portion: I4
    fill_n: I8
    machine: I4
    mark: U1
    remainders: I4
    opened: I4
    worst: I4
    most_left: I8M
    least_unit: I8M
    whole: I4
    reopen: I4
    con_first: I4M
    con_last: I4M
    con_group: I4
    group_first: I4
    group_last: I4
    group_block: I4
    group_scarce: I4
    group_class: I4
    alike: U1
    looked_at: I8
    by_tier: I4
    again: I4
    short: I4
    dropped: I4
    dropped_cell: I4
    money: F8
    meta: I8


# What a step may make more of than it began with; each grows on its own.
_GROWING = ("lots", "bought", "uni")
_COLUMNS = ("token", "token_next", "fill_portion", "fill_n", "machine", "dropped", "dropped_cell")


def enlarged(b: Book) -> Book:
    """The book with twice the room for what kernels add to it."""
    changed: dict[str, Any] = {}
    for name in _GROWING:
        part = getattr(b, name)
        size = 2 * len(next(iter(part)))
        changed[name] = type(part)(*(grown(column, size) for column in part))
    for name in _COLUMNS:
        column = getattr(b, name)
        changed[name] = grown(column, 2 * len(column))
    s = b.s
    size = 2 * len(s.kind)
    changed["s"] = s._replace(
        lot=grown(s.lot, size), block=grown(s.block, max(len(s.block), size)), kind=grown(s.kind, size),
        a=grown(s.a, size), b=grown(s.b, size), c=grown(s.c, size), d=grown(s.d, size),
    )  # fmt: skip
    b.meta[FULL] = 0
    return b._replace(**changed)


def made_with(kind: type[Any], size: int, **widths: int) -> Any:
    """Columns of one part of the book, never empty: kernels take no empty matrix."""
    return made(kind, max(1, size), **widths)


def zeros(size: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.zeros(max(1, size), np.int32)
