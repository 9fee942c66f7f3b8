"""Lots: machines with equal room left, and placing units on them.

Written from docs/engine.md P13 to P15. A lot is whole until units are placed on it; the machines that got some leave it
as remainders, of which a cluster keeps a limited number open.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.oracle.placement.worth import fits, has_devices, minus, published, wanted

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.oracle.demand import Amounts
    from tests.oracle.placement.needs import Need, Portion
    from tests.oracle.placement.worth import Worth
    from tests.oracle.supply import Unit

    Where = Callable[[Unit], bool]

REMAINDER, NAMED, UNNAMED, OTHER = range(4)


@dataclass(eq=False)
class Lot:
    members: list[Unit]
    left: Amounts
    room: Amounts
    tokens: frozenset[str]
    source: str
    until: int = 0
    rank: int = NAMED
    closed: bool = False
    owner: tuple[str, str, str] | None = None
    # Only units that name a device may come.
    for_devices: bool = False

    @property
    def head(self) -> Unit:
        return self.members[0]

    @property
    def first(self) -> bytes:
        return self.members[0].id.encode()

    @property
    def slack(self) -> int:
        return min((self.left.get(name, 0) * 1000 // room for name, room in self.room.items() if room > 0), default=0)


def is_for_devices(portion: Portion, unit: Unit) -> bool:
    """Whether a machine that carries such units is for others with devices only."""
    return has_devices(portion.unit) and has_devices(published(unit))


def everywhere(_: Unit) -> bool:
    return True


@dataclass(eq=False)
class Book:
    """All lots of a step."""

    worth: Worth
    limit: int
    whole: dict[str, list[Lot]] = field(default_factory=dict)
    unnamed: list[Lot] = field(default_factory=list)
    remainders: dict[str, list[Lot]] = field(default_factory=dict)

    def lots(self, cluster: str) -> list[Lot]:
        """All lots units of a cluster may be placed on; what unnamed machines have left depends on who looks."""
        for lot in self.unnamed:
            if not lot.members:
                continue
            lot.left = lot.room = self.worth.room(cluster, lot.head)
        return [*self.open_remainders(cluster), *self.whole.get(cluster, ()), *self.unnamed]

    def open_remainders(self, cluster: str) -> list[Lot]:
        return [lot for lot in self.remainders.get(cluster, ()) if not lot.closed]

    def usable(self, need: Need, portion: Portion, lots: list[Lot], where: Where = everywhere) -> list[Lot]:
        """Those of the lots that hold a unit, in the order they are used."""
        found = []
        for lot in lots:
            if not (lot.members and not lot.closed and need.matches(lot.head) and where(lot.head)):
                continue
            if lot.owner not in (None, (need.cluster, need.profile.fingerprint, need.group)):
                continue
            if lot.for_devices and not has_devices(portion.unit):
                continue
            units = fits(lot.left, lot.tokens, portion, lot.head)
            if units > 0 and not self.worth.risky(need, portion, lot.head):
                found.append((lot.rank, units, lot.first, lot))
        return [lot for *_, lot in sorted(found, key=lambda each: each[:3])]

    def place(self, need: Need, portion: Portion, lots: list[Lot], where: Where = everywhere) -> list[Unit]:
        """Places as much of the deficit as there is room for; the machines that got units."""
        used: list[Unit] = []
        for lot in self.usable(need, portion, lots, where):
            if portion.deficit > 0 and lot.members and not lot.closed:
                used += self.put(need, portion, lot, portion.deficit)
        return used

    def put(self, need: Need, portion: Portion, lot: Lot, units: int) -> list[Unit]:
        """Places up to so many units on one lot, machine after machine in id order."""
        most = fits(lot.left, lot.tokens, portion, lot.head)
        full = min(len(lot.members), units // most)
        rest = units - full * most if full < len(lot.members) else 0
        shares = [(most, lot.members[:full]), (rest, lot.members[full : full + 1] if rest else [])]
        want = wanted(portion, lot.head)
        devices = lot.for_devices or is_for_devices(portion, lot.head)
        used = [unit for _, members in shares for unit in members]
        lot.members = lot.members[len(used) :]
        for each, members in shares:
            if members:
                portion.got(lot.source, each * len(members), lot.until)
                self.open(
                    need.cluster,
                    Lot(
                        members,
                        minus(lot.left, want, each),
                        lot.room,
                        lot.tokens | portion.tokens,
                        lot.source,
                        lot.until,
                        REMAINDER,
                        for_devices=devices,
                    ),
                )
        if lot.rank == UNNAMED:
            for unit in used:
                unit.claimant = need
        if need.spread and used:
            domain = need.domain_of(used[0])
            need.counts[domain] = need.counts.get(domain, 0) + full * most + rest
        return used

    def open(self, cluster: str, lot: Lot) -> None:
        """A further remainder; beyond the limit the one with least slack closes."""
        kept = self.remainders.setdefault(cluster, [])
        kept.append(lot)
        still = [each for each in kept if not each.closed and each.members]
        if len(still) > self.limit:
            least = min(each.slack for each in still)
            max((each for each in still if each.slack == least), key=lambda each: each.first).closed = True

    def save(self) -> object:
        lots = [*self.unnamed, *(lot for kept in (*self.whole.values(), *self.remainders.values()) for lot in kept)]
        return (
            {cluster: list(kept) for cluster, kept in self.remainders.items()},
            [(lot, list(lot.members), lot.closed) for lot in lots],
        )

    def restore(self, saved: object) -> None:
        self.remainders, lots = saved  # type: ignore[misc]
        for lot, members, closed in lots:  # type: ignore[has-type]
            lot.members, lot.closed = list(members), closed
