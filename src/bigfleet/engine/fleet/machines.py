"""Machines read one by one or page by page, between steps: what the engine knows about each, in text order of ids.

Looks at columns only; a page of a fleet of millions touches a few columns once and renders its own rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.fleet.cells import IDLE
from bigfleet.engine.kernels.ids import SKIP, USED

if TYPE_CHECKING:
    from bigfleet.engine.batches import Shape, Stamp
    from bigfleet.engine.fleet.fleet import Fleet


@dataclass(frozen=True, slots=True)
class MachineRow:
    """One machine; `idle_since` is None unless it is Idle."""

    id: str
    state: int
    shape: Shape
    cluster: str
    stamp: Stamp
    not_before: int
    idle_since: int | None


@dataclass(frozen=True, slots=True)
class MachineFilter:
    """What machines to read; an empty field accepts everything."""

    states: tuple[int, ...] = ()
    cluster: str = ""
    provider: str = ""
    instance_type: str = ""
    zone: str = ""


ANY_MACHINE = MachineFilter()


def one_machine(fleet: Fleet, id: str) -> MachineRow | None:
    slot = fleet.ids.find(id)
    return _row(fleet, slot, id) if slot >= 0 and fleet.v.state[slot] else None


def page_of_machines(fleet: Fleet, where: MachineFilter, after: str, limit: int) -> list[MachineRow]:
    """Rows in text order of ids, the first one behind `after`."""
    slots = _matching(fleet, where)
    keys = fleet.ids.v.key[slots]
    begin = after.encode()
    floor = _least_key(fleet, begin, slots)
    picked: list[tuple[bytes, int]] = []
    while len(picked) < limit:
        behind = keys >= floor
        keys, slots = keys[behind], slots[behind]
        if not len(keys):
            break
        # Keys are prefixes of ids and may tie, so whole runs of equal keys are read until the page is full.
        last = min(len(keys), limit - len(picked)) - 1
        ceiling = int(np.partition(keys, last)[last])
        named = sorted((fleet.ids.text(slot).encode(), slot) for slot in slots[keys <= ceiling].tolist())
        picked.extend(each for each in named if each[0] > begin)
        floor = ceiling + 1
    return [_row(fleet, slot, text.decode()) for text, slot in picked[:limit]]


def _least_key(fleet: Fleet, begin: bytes, slots: NDArray[np.int64]) -> int:
    """No id behind `begin` has a smaller key. Keys are the seven bytes behind what all ids have in common."""
    skip = int(fleet.ids.v.meta[SKIP])
    if not len(slots) or not begin:
        return 0
    common = fleet.ids.text(int(slots[0])).encode()[:skip]
    if begin[:skip] != common:
        return 0 if begin < common else 2**63 - 1
    return int.from_bytes(begin[skip : skip + 7].ljust(7, b"\0"), "big")


def _matching(fleet: Fleet, where: MachineFilter) -> NDArray[np.int64]:
    v, used = fleet.v, int(fleet.ids.v.meta[USED])
    state = v.state[:used]
    good = np.isin(state, where.states) if where.states else state != 0
    if where.cluster:
        number = fleet.cluster_index.get(where.cluster, -2)
        good &= v.cluster[:used] == number
    offers = [
        where.provider in ("", provider) and where.instance_type in ("", kind) and where.zone in ("", zone)
        for provider, kind, zone, _ in fleet.catalog.offers
    ]
    if not all(offers):
        good &= np.array(offers, bool)[fleet.catalog.shape_offer[v.shape[:used]]] & (state != 0)
    return np.nonzero(good)[0]


def _row(fleet: Fleet, slot: int, id: str) -> MachineRow:
    v, catalog = fleet.v, fleet.catalog
    state, cluster = int(v.state[slot]), int(v.cluster[slot])
    return MachineRow(
        id=id,
        state=state,
        shape=catalog.shapes[int(v.shape[slot])],
        cluster=fleet.clusters[cluster] if cluster >= 0 else "",
        stamp=catalog.stamps.stamps[int(v.stamp[slot])],
        not_before=int(v.not_before[slot]),
        idle_since=int(v.idle_since[slot]) if state == IDLE else None,
    )
