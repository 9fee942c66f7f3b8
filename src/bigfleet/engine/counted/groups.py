"""Groups of classes that are alike to every turn of a step, and of their blocks: idle ones, and those to be bought.

Classes are alike if what decides about a purchase is: room, price, risk, devices, `pods`, owner, and which constraint
sets of the step's turns they match. A fleet has many blocks and few groups. What a cluster's nodes said and which
offers are closed to it may still differ within a group; `alike` tells for which clusters nothing of that is there.
Groups are found once per step. Blocks of one are in the order of their smallest ids.
"""

from __future__ import annotations

import numpy as np

from bigfleet.engine.counted.book import BUY, PAID_IDLE, Book, zeros
from bigfleet.engine.counted.buying import unclaimed
from bigfleet.engine.decide.world import World
from bigfleet.engine.kernels.ids import id_less
from bigfleet.engine.kernels.jit import I4, I4M, inner, kernel
from bigfleet.engine.kernels.sort import ANSWER, EARLIER, LATER, asks, sort_by_key, sorting


@kernel
def group_classes(w: World, b: Book, cons: I4, group: I4, first: I4) -> int:
    """By class its group, -1 where the fleet has none; `first` is a class of each group. Returns how many there are."""
    classes = len(group)
    listed = np.empty(classes, np.int32)
    count = 0
    for cls in range(classes):
        group[cls] = -1
        if b.kinds.alive[cls] != 0:
            listed[count] = cls
            count += 1
    groups = _by_kind(w, b, listed, count, group, first)
    size = np.zeros(classes + 1, np.int32)
    for i in range(count):
        size[group[listed[i]]] += 1
    hits = np.zeros(classes + 1, np.int32)
    into = np.full(classes + 1, -1, np.int32)
    for con in cons:
        if groups == count:
            break
        for i in range(count):
            if w.match[con, listed[i]] != 0:
                hits[group[listed[i]]] += 1
        before = groups
        for i in range(count):
            cls = listed[i]
            old = group[cls]
            if old < before and w.match[con, cls] != 0 and hits[old] < size[old]:
                if into[old] < 0:
                    into[old] = groups
                    size[groups] = hits[old]
                    groups += 1
                group[cls] = into[old]
        for old in range(before):
            if into[old] >= 0:
                size[old] -= hits[old]
                into[old] = -1
            hits[old] = 0
    for i in range(count):
        first[group[listed[i]]] = listed[i]
    return groups


@inner
def _by_kind(w: World, b: Book, listed: I4, count: int, group: I4, first: I4) -> int:
    """Groups by everything but constraint sets."""
    mask = 1
    while mask <= 2 * count:
        mask *= 2
    table = np.full(mask, -1, np.int32)
    mask -= 1
    groups = 0
    for i in range(count):
        cls = listed[i]
        value = int(w.k.price[cls] * 1000003.0) & 0x7FFFFFFF
        for d in range(w.k.alloc.shape[1]):
            value = (value ^ (value >> 15)) & 0x7FFFFFFF
            value = (value * 374761393 + (int(w.k.alloc[cls, d]) & 0x7FFFFFFF)) & 0x7FFFFFFFFFFF
        at = (value ^ (value >> 17)) & mask
        while table[at] >= 0 and not _same_kind(w, b, first[table[at]], cls):
            at = (at + 1) & mask
        if table[at] < 0:
            table[at] = groups
            first[groups] = cls
            groups += 1
        group[cls] = table[at]
    return groups


@inner
def _same_kind(w: World, b: Book, x: int, y: int) -> bool:
    if (
        w.k.price[x] != w.k.price[y]
        or w.k.risk[x] != w.k.risk[y]
        or b.kinds.device[x] != b.kinds.device[y]
        or b.kinds.owned[x] != b.kinds.owned[y]
        or b.kinds.pods[x] != b.kinds.pods[y]
    ):
        return False
    for d in range(w.k.alloc.shape[1]):
        if w.k.alloc[x, d] != w.k.alloc[y, d]:
            return False
    return True


@kernel
def order_blocks(
    w: World, b: Book, tier: int, group: I4, groups: int, first: I4, last: I4, blocks: I4, used: int
) -> int:  # fmt: skip
    """Blocks of a tier of which something is left, by group and smallest id, behind the first `used`; `first` and
    `last` are the stretches of this tier's groups. Returns how many there are then."""
    size = b.by_tier[tier + 1] - b.by_tier[tier]
    mine = np.empty(size, np.int32)
    keys = np.empty(size, np.int64)
    count = 0
    for block in range(b.by_tier[tier], b.by_tier[tier + 1]):
        if unclaimed(w, b, block) > 0:
            mine[count] = block
            keys[count] = w.ids.key[b.blocks.least[block]]
            count += 1
    sort_by_key(mine, keys, count)
    at = 0
    while at < count:
        end = at + 1
        while end < count and w.ids.key[b.blocks.least[mine[end]]] == w.ids.key[b.blocks.least[mine[at]]]:
            end += 1
        if end - at > 1:
            sort = sorting(at, end - at)
            while asks(sort, mine):
                sort[ANSWER] = id_less(w.ids, b.blocks.least[sort[LATER]], b.blocks.least[sort[EARLIER]])
        at = end
    for each in range(groups):
        last[each] = 0
    for i in range(count):
        last[group[b.blocks.cls[mine[i]]]] += 1
    at = used
    for each in range(groups):
        first[each] = at
        at += last[each]
        last[each] = first[each]
    for i in range(count):
        each = group[b.blocks.cls[mine[i]]]
        blocks[last[each]] = mine[i]
        last[each] += 1
    return at


@kernel
def list_groups(
    w: World, b: Book, cons: I4, tier: int, cls: I4, groups: int, con_first: I4M, con_last: I4M, listed: I4, used: int
) -> int:  # fmt: skip
    """By constraint set the groups of a tier that match it and have a block; only counts where `listed` has no room."""
    at = used
    base = groups if tier == BUY else 0
    for con in cons:
        if len(listed) > 0:
            con_first[tier, con] = at
        for each in range(groups):
            if b.group_first[base + each] < b.group_last[base + each] and w.match[con, cls[each]] != 0:
                if len(listed) > 0:
                    listed[at] = base + each
                at += 1
        if len(listed) > 0:
            con_last[tier, con] = at
    return at


def group_blocks(w: World, b: Book, classes: int, offers: int) -> Book:
    """The book with its groups."""
    shape = (BUY + 1, len(w.match))
    con_first, con_last = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    asked = np.zeros(len(w.match), np.uint8)
    asked[b.t.con] = 1
    cons = np.nonzero(asked)[0].astype(np.int32)
    group, cls = zeros(classes)[:classes], zeros(classes)
    groups = group_classes(w, b, cons, group, cls)
    first, last, blocks = zeros(2 * groups), zeros(2 * groups), zeros(len(b.blocks.cls))
    used = order_blocks(w, b, PAID_IDLE, group, groups, first[:groups], last[:groups], blocks, 0)
    order_blocks(w, b, BUY, group, groups, first[groups:], last[groups:], blocks, used)
    alike = np.ones(len(w.c.start), np.uint8)
    alike[b.said.cluster[b.said.count > 0]] = 0
    alike[b.shut.cluster[b.shut.cluster >= 0]] = 0
    b = b._replace(
        con_first=con_first, con_last=con_last, group_first=first, group_last=last, group_block=blocks,
        group_scarce=zeros(2 * groups), group_class=cls[:groups], alike=alike,
        looked_at=np.zeros(2 * max(1, offers), np.int64),
    )  # fmt: skip
    size = 0
    for tier in (PAID_IDLE, BUY):
        size = list_groups(w, b, cons, tier, cls, groups, con_first, con_last, zeros(0)[:0], size)
    listed = zeros(size)
    used = 0
    for tier in (PAID_IDLE, BUY):
        used = list_groups(w, b, cons, tier, cls, groups, con_first, con_last, listed, used)
    return b._replace(con_group=listed)
