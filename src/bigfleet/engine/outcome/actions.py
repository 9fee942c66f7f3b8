"""Actions of a step as columns: machines picked for what was decided, rails applied, rows rendered on demand (§6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from bigfleet.engine.batches import Conditions
from bigfleet.engine.decide.world import World
from bigfleet.engine.fleet.cells import IDLE
from bigfleet.engine.fleet.members import order_members
from bigfleet.engine.kernels.jit import I4, I4R, U1, kernel
from bigfleet.engine.kernels.pool import Pool
from bigfleet.engine.policy import Policy, drain_grace_seconds
from bigfleet.engine.results import Action, ActionKind, Disposition, NeedKey, Reason

NO_ENTRY = -1

# By the number in the column: what it is and why.
_KINDS = {
    int(kind): (kind, reason)
    for kind, reason in (
        (ActionKind.BOOTSTRAP, Reason.IDLE),
        (ActionKind.PROVISION, Reason.SPECULATIVE),
        (ActionKind.PREEMPT, Reason.INVERSION),
        (ActionKind.RECLAIM, Reason.EXCESS),
        (ActionKind.DELETE, Reason.RELEASE),
        (ActionKind.CLOSE, Reason.CLOSE),
        (ActionKind.REOPEN, Reason.REOPEN),
    )
}


REASONS = tuple(Reason)
_REASON = {reason: number for number, reason in enumerate(REASONS)}


class Told(Struct, frozen=True, eq=False):
    """What actions of clusters that report placement say beside their columns: why (a place in `REASONS`), whether the
    operator may refuse, and which machines they replace, by place."""

    why: NDArray[np.uint8]
    voluntary: NDArray[np.bool_]
    replaces: dict[int, tuple[str, ...]]


class Names(Struct, frozen=True, eq=False):
    """How rows get their texts; valid until the engine's next step."""

    machines: Callable[[NDArray[np.int32]], list[str]]
    clusters: Sequence[str]
    need: Callable[[int], NeedKey]


class ActionBatch(Struct, frozen=True, eq=False):
    """What to do, in order. `slot`, `cluster` and `entry` are the engine's numbers; rows and ids speak names."""

    kind: NDArray[np.uint8]
    slot: NDArray[np.int32]
    entry: NDArray[np.int32]
    cluster: NDArray[np.int32]
    grace: NDArray[np.int32]
    preemptor_priority: NDArray[np.int64]
    disposition: Disposition
    names: Names
    told: Told | None = None

    def __len__(self) -> int:
        return len(self.kind)

    def machine_ids(self, which: slice = slice(None)) -> list[str]:
        """Ids of some of the machines, in the order of the actions."""
        return self.names.machines(self.slot[which])

    def reasons(self) -> list[Reason]:
        if self.told is not None:
            return [REASONS[why] for why in self.told.why.tolist()]
        return [_KINDS[kind][1] for kind in self.kind.tolist()]

    def rows(self) -> list[Action]:
        if not len(self.kind):
            return []
        names, disposition, found = self.names, self.disposition, []
        columns = (self.kind, self.cluster, self.entry, self.grace, self.preemptor_priority)
        last, need = NO_ENTRY, None
        for machine, kind, cluster, entry, grace, priority in zip(
            self.machine_ids(), *(column.tolist() for column in columns), strict=True
        ):
            if entry != last:
                # Actions of one entry follow each other.
                last, need = entry, names.need(entry) if entry >= 0 else None
            what, reason = _KINDS[kind]
            home = names.clusters[cluster] if cluster >= 0 else ""
            found.append(Action(what, machine, home, need, grace, priority, reason, disposition))
        if self.told is not None:
            self._tell(self.told, found)
        return found

    def _tell(self, told: Told, found: list[Action]) -> None:
        for at, (why, voluntary) in enumerate(zip(told.why.tolist(), told.voluntary.tolist(), strict=True)):
            found[at] = replace(found[at], reason=REASONS[why], voluntary=voluntary, replaces=told.replaces.get(at, ()))


class Phase(NamedTuple):
    """Actions of one phase where clusters report placement, in order; `replaces` is by place."""

    kind: NDArray[np.uint8]
    slot: NDArray[np.int32]
    entry: NDArray[np.int32]
    cluster: NDArray[np.int32]
    grace: NDArray[np.int32]
    priority: NDArray[np.int64]
    why: NDArray[np.uint8]
    voluntary: NDArray[np.bool_]
    replaces: dict[int, tuple[str, ...]]

    @classmethod
    def of(
        cls,
        kind: NDArray[np.uint8],
        slot: NDArray[np.int32],
        entry: NDArray[np.int32],
        cluster: NDArray[np.int32],
        why: NDArray[np.uint8],
    ) -> Phase:
        n = len(kind)
        return cls(kind, slot, entry, cluster, np.zeros(n, np.int32), np.zeros(n, np.int64), why, np.zeros(n, bool), {})

    def at(self, places: NDArray[np.int64]) -> Phase:
        """The actions of these places, in this order."""
        moved = {old: new for new, old in enumerate(places.tolist())} if self.replaces else {}
        return Phase(
            self.kind[places], self.slot[places], self.entry[places], self.cluster[places], self.grace[places],
            self.priority[places], self.why[places], self.voluntary[places],
            {moved[old]: ids for old, ids in self.replaces.items() if old in moved},
        )  # fmt: skip

    def first(self, count: int) -> Phase:
        return self if count == len(self.kind) else self.at(np.arange(count))


def joined(phases: Sequence[Phase]) -> Phase:
    """Phases behind each other; the only one that has any is not copied."""
    some = [phase for phase in phases if len(phase.kind)]
    if len(some) <= 1:
        return some[0] if some else phases[0]
    phases = some
    replaces: dict[int, tuple[str, ...]] = {}
    at = 0
    for phase in phases:
        replaces |= {at + place: ids for place, ids in phase.replaces.items()}
        at += len(phase.kind)
    return Phase(
        np.concatenate([phase.kind for phase in phases]), np.concatenate([phase.slot for phase in phases]),
        np.concatenate([phase.entry for phase in phases]), np.concatenate([phase.cluster for phase in phases]),
        np.concatenate([phase.grace for phase in phases]), np.concatenate([phase.priority for phase in phases]),
        np.concatenate([phase.why for phase in phases]), np.concatenate([phase.voluntary for phase in phases]),
        replaces,
    )  # fmt: skip


def same(count: int, reason: Reason) -> NDArray[np.uint8]:
    """One reason for so many actions."""
    return np.full(count, _REASON[reason], np.uint8)


def reasons_of(kinds: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The reasons that go with the kinds where clusters send sums."""
    table = np.zeros(8, np.uint8)
    for kind, (_, reason) in _KINDS.items():
        table[kind] = _REASON[reason]
    return table[kinds]


def told_actions(phases: Sequence[Phase], conditions: Conditions, names: Names) -> ActionBatch:
    """All that is kept of the phases, as one batch."""
    every = joined(phases)
    disposition = Disposition.EMIT
    if conditions.paused:
        disposition = Disposition.SUPPRESSED
    elif conditions.dry_run:
        disposition = Disposition.DRYRUN
    return ActionBatch(
        every.kind, every.slot, every.entry, every.cluster, every.grace, every.priority, disposition, names,
        Told(every.why, every.voluntary, every.replaces),
    )  # fmt: skip


class Acquisitions(NamedTuple):
    """Columns of the acquisitions: what to do with which machine, for whom and where."""

    kind: NDArray[np.uint8]
    slot: NDArray[np.int32]
    entry: NDArray[np.int32]
    cluster: NDArray[np.int32]

    @classmethod
    def of(cls, count: int) -> Acquisitions:
        kind = np.empty(count, np.uint8)
        return cls(kind, np.empty(count, np.int32), np.empty(count, np.int32), np.empty(count, np.int32))

    def first(self, count: int) -> Acquisitions:
        if count == len(self.slot):
            return self
        return Acquisitions(self.kind[:count], self.slot[:count], self.entry[:count], self.cluster[:count])


NO_ACQUISITIONS = Acquisitions.of(0)


def all_actions(
    w: World,
    home: NDArray[np.int32],
    names: Names,
    conditions: Conditions,
    policy: Policy,
    kept: tuple[int, int, int, int],
    made1: Acquisitions,
    slot2: NDArray[np.int32],
    entry2: NDArray[np.int32],
    gap: NDArray[np.int64],
    slot3: NDArray[np.int32],
    cluster3: NDArray[np.int32],
    slot4: NDArray[np.int32],
) -> ActionBatch:
    """The first actions of each phase, as many as are kept, behind each other; `home` is each machine's cluster."""
    n1, n2, n3, n4 = kept
    total = n1 + n2 + n3 + n4
    disposition = Disposition.EMIT
    if conditions.paused:
        disposition = Disposition.SUPPRESSED
    elif conditions.dry_run:
        disposition = Disposition.DRYRUN
    grace, priority = np.zeros(total, np.int32), np.zeros(total, np.int64)
    if total == n1:
        return ActionBatch(*made1.first(n1), grace, priority, disposition, names)
    kind, slot, entry, cluster = Acquisitions.of(total)
    at2, at3, at4 = n1, n1 + n2, n1 + n2 + n3
    if n1:
        kind[:at2], slot[:at2], entry[:at2], cluster[:at2] = made1.first(n1)
    if n2:
        kind[at2:at3] = ActionKind.PREEMPT
        slot[at2:at3], entry[at2:at3], cluster[at2:at3] = slot2[:n2], entry2[:n2], home[slot2[:n2]]
        grace[at2:at3], priority[at2:at3] = graces(gap[:n2]), w.p.priority[w.e.prof[entry2[:n2]]]
    entry[at3:] = NO_ENTRY
    if n3:
        kind[at3:at4], grace[at3:at4] = ActionKind.RECLAIM, policy.reclaim_grace_seconds
        slot[at3:at4], cluster[at3:at4] = slot3[:n3], cluster3[:n3]
    if n4:
        kind[at4:], slot[at4:], cluster[at4:] = ActionKind.DELETE, slot4[:n4], -1
    return ActionBatch(kind, slot, entry, cluster, grace, priority, disposition, names)


def graces(gaps: NDArray[np.int64]) -> NDArray[np.int32]:
    """Grace of each victim by the gap to its preemptor."""
    if not len(gaps):
        return np.zeros(0, np.int32)
    distinct, place = np.unique(gaps, return_inverse=True)
    return np.array([drain_grace_seconds(int(gap)) for gap in distinct], np.int32)[place]


def shares(wanted: tuple[int, int, int], most: int) -> tuple[int, int, int]:
    """How many actions of each phase a maximum lets through; 0 means no maximum."""
    if most == 0 or sum(wanted) <= most:
        return wanted
    kept = [min(n, most // 3) for n in wanted]
    left = most - sum(kept)
    for phase in range(3):
        more = min(left, wanted[phase] - kept[phase])
        kept[phase] += more
        left -= more
    return kept[0], kept[1], kept[2]


@kernel
def bindings(w: World, members: Pool, place: I4R, kind: U1, slot: I4, entry: I4, cluster: I4) -> None:
    """Machines of the acquisitions: per entry Bootstraps in the order taken, then Provisions."""
    at = 0
    first = 0
    end = w.got.meta[0]
    while first < end:
        last = first + 1
        one = w.got.entry[first]
        while last < end and w.got.entry[last] == one:
            last += 1
        home = w.e.cluster[one]
        for phase in range(2):
            for i in range(first, last):
                cell = w.got.cell[i]
                idle = w.cells.state[cell] == IDLE
                if idle != (phase == 0):
                    continue
                if w.got.first[i] == 0:
                    # Whoever takes from a cell first takes its first members.
                    order_members(w.cells, members, w.ids, place, cell)
                start = w.cells.start[cell] + w.got.first[i]
                for k in range(w.got.n[i]):
                    kind[at] = 1 if idle else 2
                    slot[at] = members.data[start + k]
                    entry[at] = one
                    cluster[at] = home
                    at += 1
            if w.e.provisions[one] == 0:
                break
        first = last
