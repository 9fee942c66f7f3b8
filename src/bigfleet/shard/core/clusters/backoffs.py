"""Kinds of machines that did not help a cluster: they came as something else than was offered, their nodes never
became ready, or did and nobody found room there.

A machine bound for a row is watched until its node is ready and a roll-up of that state or a later one is in force. If
as many units of the row have no room as before and the node is empty, such machines are no use to it for a while,
doubling from five minutes to an hour (`docs/engine.md`, P46). A node that others filled proves nothing: in a burst
larger pods take the room first. A machine that helped forgets the row's backoff, a ready node that of its cluster.
Of machines bought together for a gang only the last proves anything: before it is ready nobody of the gang can run.
What comes as something its row cannot use proves it at once, before it is bound (`machines/as_offered.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from bigfleet.engine.batches import NONE
from bigfleet.engine.placement import Backoff
from bigfleet.engine.policy import MINUTE
from bigfleet.engine.results import NeedKey
from bigfleet.model.resources import Resources
from bigfleet.shard.contract.outcomes import Level
from bigfleet.shard.core.state.backoff import Kind, Rest, kind_of
from bigfleet.shard.core.state.enum_aliases import CONFIGURING, CREATING

if TYPE_CHECKING:
    from bigfleet.engine.batches import Rollup, Shape
    from bigfleet.shard.contract.events import NodeReported
    from bigfleet.shard.core.state.fleet import Record
    from bigfleet.shard.core.state.state import ShardState

FIRST = 5 * MINUTE
LONGEST = 60 * MINUTE

# Cluster, kind of machine, and the row; None for every row of the cluster.
_Subject = tuple[str, Kind, NeedKey | None]
_Standing = tuple[int, int]
_Row = tuple[str, str, str]


class Resting(NamedTuple):
    """Until when a kind is left alone, and why; `otherwise`: because it does not come as it is offered."""

    until: int = 0
    why: str = ""
    otherwise: bool = False


@dataclass(slots=True)
class _Rest(Rest):
    """A rest that knows whether the kind came as something else."""

    otherwise: bool = False


class _Watched(Struct):
    """A machine bound for a row; once its node is ready, as of which version and how the row stood before."""

    row: NeedKey
    kind: Kind
    version: int = 0
    before: _Standing = (0, 0)
    empty: bool = True


class Backoffs:
    """What is left alone, and machines that have still to prove their worth."""

    def __init__(self, state: ShardState) -> None:
        self._state = state
        self._rests: dict[_Subject, _Rest] = {}
        self._watched: dict[str, dict[str, _Watched]] = {}
        self._standings: dict[str, tuple[Rollup, dict[_Row, _Standing]]] = {}

    def in_force(self) -> tuple[Backoff, ...]:
        """As the engine takes them, in a fixed order."""
        now = self._state.now
        live = [(subject, rest.until) for subject, rest in self._rests.items() if now < rest.until]
        return tuple(
            Backoff(cluster, *kind, until, row)
            for (cluster, kind, row), until in sorted(live, key=lambda it: _order(it[0]))
        )

    def why(self, cluster: str, shape: Shape, row: NeedKey) -> str:
        """Why machines of the kind are not tried for the row; empty when they are."""
        now, kind = self._state.now, kind_of(shape)
        for subject in ((cluster, kind, None), (cluster, kind, row)):
            rest = self._rests.get(subject)
            if rest is not None and now < rest.until:
                return rest.why
        return ""

    def resting(self, row: NeedKey) -> dict[Kind, Resting]:
        """Kinds that are not tried for the row."""
        now = self._state.now
        found: dict[Kind, Resting] = {}
        for (cluster, kind, whose), rest in self._rests.items():
            if cluster == row.cluster and whose in (None, row) and now < rest.until:
                found[kind] = max(found.get(kind, Resting()), Resting(rest.until, rest.why, rest.otherwise))
        return found

    def comes_otherwise(self, row: NeedKey, kind: Kind) -> str:
        """How machines of the kind come as something the row cannot use; empty where they are not left alone for it."""
        rest = self._rests.get((row.cluster, kind, row))
        return rest.why if rest is not None and rest.otherwise and self._state.now < rest.until else ""

    def otherwise(self, row: NeedKey, kind: Kind, machine: str, why: str) -> bool:
        """A machine bought as one of this kind, for the row if it is named, comes as something else of no use to it;
        False when that was known."""
        self.dismiss(row.cluster, machine)
        return self._failed((row.cluster, kind, row), why, otherwise=True, told=bool(machine))

    def find_overdue(self) -> None:
        """Before a step: it gives up machines whose nodes did not become ready, and must not buy their kind again."""
        state = self._state
        for cluster, members in list(self._watched.items()):
            for key in [key for key, each in members.items() if not each.version]:
                record = state.fleet.machines.get(key)
                if record is not None and state.deadlines.passed(key, record.state, state.now):
                    self.never_ready(cluster, record)
                    self.dismiss(cluster, key)

    def never_ready(self, cluster: str, record: Record) -> None:
        """The machine is given up because its node did not become ready."""
        self._failed((cluster, kind_of(record.shape), None), "its nodes did not become ready")

    def watch(self, machine: Record, row: NeedKey) -> None:
        """The machine is being bound for this row."""
        self._watched.setdefault(row.cluster, {})[machine.key] = _Watched(row, kind_of(machine.shape))

    def reported(self, cluster: str, event: NodeReported, rollup: Rollup | None) -> None:
        """A node's report, and the roll-up in force when it came."""
        watched = self._watched.get(cluster, {}).get(event.machine)
        if watched is None:
            return
        watched.empty = event.empty
        if watched.version or not event.ready or event.closing_since:
            return
        self._rests.pop((cluster, watched.kind, None), None)
        if watched.row.group and self._others_boot(cluster, event.machine, watched.row.group):
            self.dismiss(cluster, event.machine)
            return
        if rollup is None or rollup.counted is None or rollup.counted.mirror_version >= event.mirror_version:
            # Nothing tells what the row was like without the machine.
            self.dismiss(cluster, event.machine)
            return
        watched.version = event.mirror_version
        watched.before = self._standing(rollup, watched.row)

    def _others_boot(self, cluster: str, machine: str, group: str) -> bool:
        """Whether another machine of the gang is not ready yet."""
        fleet, watched = self._state.fleet, self._watched[cluster]
        for key in fleet.bound.get(cluster, ()):
            record = fleet.machines[key]
            if key == machine or record.stamp.group != group:
                continue
            if record.state in (CREATING, CONFIGURING) or (key in watched and not watched[key].version):
                return True
        return False

    def applied(self, rollup: Rollup, version: int) -> None:
        """The roll-up is in force, as of this version of the cluster's mirror."""
        members = self._watched.get(rollup.cluster)
        if not members:
            return
        for machine, watched in list(members.items()):
            if watched.version and version >= watched.version:
                self._judge(watched, self._standing(rollup, watched.row))
                self.dismiss(rollup.cluster, machine)

    def dismiss(self, cluster: str, machine: str) -> None:
        """The machine has nothing more to prove, or cannot any more."""
        members = self._watched.get(cluster)
        if members is not None and members.pop(machine, None) is not None and not members:
            del self._watched[cluster]

    def forget(self, cluster: str) -> None:
        self._watched.pop(cluster, None)
        self._standings.pop(cluster, None)
        for subject in [subject for subject in self._rests if subject[0] == cluster]:
            del self._rests[subject]

    def prune(self) -> None:
        """Forget what has been allowed again for longer than the longest rest."""
        now = self._state.now
        for subject in [subject for subject, rest in self._rests.items() if now - rest.until > LONGEST]:
            del self._rests[subject]

    def _judge(self, watched: _Watched, after: _Standing) -> None:
        subject = (watched.row.cluster, watched.kind, watched.row)
        (with_room_before, stranded_before), (with_room, stranded) = watched.before, after
        if not stranded or not stranded_before or stranded < stranded_before or with_room > with_room_before:
            self._rests.pop(subject, None)
        elif watched.empty:
            self._failed(subject, "its pods did not run there")

    def _failed(self, subject: _Subject, why: str, *, otherwise: bool = False, told: bool = True) -> bool:
        """Leave the kind alone from now on; False when it is already."""
        rest = self._rests.setdefault(subject, _Rest())
        now = self._state.now
        if now < rest.until:
            # Machines of one wave fail together and must not double the pause again.
            return False
        rest.failures += 1
        rest.why, rest.otherwise = why, otherwise
        rest.until = now + min(LONGEST, FIRST << min(rest.failures - 1, 10))
        if not told:
            return True
        cluster, kind, row = subject
        self._state.turn.log(
            Level.WARNING,
            "machines of this kind did not help; none is acquired for a while",
            cluster=cluster,
            fingerprint="" if row is None else row.fingerprint,
            min_unit="" if row is None else row.min_unit,
            provider=kind[0],
            instance_type=kind[1],
            zone=kind[2],
            err=why,
            seconds=(rest.until - now) // 1_000_000_000,
        )
        return True

    def _standing(self, rollup: Rollup, row: NeedKey) -> _Standing:
        """Units of the row that have room, and units that have none."""
        known = self._standings.get(rollup.cluster)
        if known is None or known[0] is not rollup:
            known = self._standings[rollup.cluster] = (rollup, _standings(rollup))
        return known[1].get((row.fingerprint, row.group, row.min_unit), (0, 0))


def _standings(rollup: Rollup) -> dict[_Row, _Standing]:
    """By row and, for gangs, all rows together under the key without a unit."""
    assert rollup.counted is not None
    found: dict[_Row, _Standing] = {}
    for row in range(len(rollup)):
        profile = rollup.profiles[rollup.profile[row]]
        group = "" if rollup.group[row] == NONE else rollup.groups[rollup.group[row]]
        unit = dict(zip(rollup.resources, rollup.min_unit[row].tolist(), strict=True))
        stranded = int(rollup.counted.stranded[row])
        with_room = int(rollup.counted.count[row]) - stranded
        keys = [Resources({name: amount for name, amount in unit.items() if amount > 0}).canonical]
        for key in (*keys, "") if profile.same is not None else keys:
            name = (profile.fingerprint, group, key)
            before = found.get(name, (0, 0))
            found[name] = (before[0] + with_room, before[1] + stranded)
    return found


def _order(subject: _Subject) -> tuple[str, Kind, tuple[str, str, str]]:
    cluster, kind, row = subject
    return cluster, kind, ("", "", "") if row is None else (row.fingerprint, row.group, row.min_unit)
