"""The rows of a roll-up: units wanted, running and without room per profile, group and exact unit.

Kept as requests come and go; resources are count times unit, always. A profile whose pods come in too many sizes is
told by cells of a grid, each as the least that holds all its units, until there are few sizes again for a while: a
unit is rounded up a little, and never past what somebody asks for. (Rounded up to the grid itself, 16 cores no longer
fitted a machine of 16.)
Pods that may not share a machine have rows of their own, told a KiB larger beside others of their size: a shard adds up
rows of one unit, and would keep everybody apart. So have pods of one strict spread beside those of another: where one
Deployment may grow says nothing about where the next may, and added up they ask for machines where nobody can use them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from bigfleet.model.names import HOSTNAME_LABEL
from bigfleet.model.profile import Profile
from bigfleet.model.resources import Resources
from bigfleet.operator.core.events import SECOND

if TYPE_CHECKING:
    from bigfleet.operator.core.mirror.kinds import Kind

K = TypeVar("K")

MANY_UNITS = 64
FEW_UNITS = 32
FEW_FOR = 30 * 60 * SECOND
_ROUNDED = ("cpu", "memory")
# Amounts keep five significant bits: each is rounded up by at most a sixteenth.
_BITS = 5


class Row(Struct, frozen=True):
    """One row; running + stranded ≤ count, the rest has room and is not bound yet."""

    profile: Profile
    group: str
    unit: Resources
    count: int
    running: int
    stranded: int
    # Units where they are: by domain of a strict spread, or the one domain of a gang.
    domain_units: tuple[tuple[str, int], ...] = ()
    exclusive: tuple[str, ...] = ()

    @property
    def resources(self) -> Resources:
        return self.unit.scale(self.count)


class RowBook:
    """A row as it is kept."""

    __slots__ = ("count", "family", "kinds", "running", "spread", "stranded", "tokens", "unit")

    def __init__(self, family: Family, unit: Resources, tokens: tuple[str, ...], spread: str) -> None:
        self.family = family
        self.spread = spread
        self.unit = unit
        self.tokens = tokens
        self.count = 0
        self.running = 0
        self.stranded = 0
        self.kinds: dict[Kind, int] = {}


class Family:
    """All rows of one profile and group."""

    __slots__ = ("coarse", "few_since", "group", "profile", "rows", "spreads", "told_as", "units")

    def __init__(self, profile: Profile, group: str) -> None:
        self.profile = profile
        self.group = group
        # Exact units and how many of each are wanted.
        self.units: dict[Resources, int] = {}
        self.rows: dict[tuple[Resources, tuple[str, ...], str], RowBook] = {}
        # Strict spreads with units wanted of each, and as which each is told: above so many all others are one.
        self.spreads: dict[str, int] = {}
        self.told_as: dict[str, str] = {}
        self.coarse = False
        self.few_since: int | None = None

    def count_spread(self, name: str, units: int) -> str:
        """So many units more (or less) of a strict spread; as which it is told."""
        if name not in self.told_as:
            self.told_as[name] = name if len(self.told_as) < MANY_UNITS else ""
        told = self.told_as[name]
        _count(self.spreads, name, units)
        if name not in self.spreads:
            del self.told_as[name]
        return told


class Rows:
    """All rows of a cluster."""

    def __init__(self) -> None:
        self._families: dict[tuple[str, str], Family] = {}
        self._crowded: set[tuple[str, str]] = set()
        # More units are wanted, or more have no room, than when this was last looked at.
        self.grew = False

    def want(self, kind: Kind, units: int) -> RowBook:
        """So many units more (or less) of this kind; the row that counts them."""
        profile, group, unit = kind.shape.profile, kind.shape.group, kind.shape.requests
        name = (profile.fingerprint, group)
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = Family(profile, group)
        _count(family.units, unit, units)
        spread = family.count_spread(kind.spread_name, units) if kind.spread_name else ""
        shown = (on_grid(unit) if family.coarse else unit, kind.tokens, spread)
        row = family.rows.get(shown)
        if row is None:
            row = family.rows[shown] = RowBook(family, *shown)
        row.count += units
        _count(row.kinds, kind, units)
        if not row.count:
            del family.rows[shown]
            if not family.rows:
                del self._families[name]
        if family.coarse or len(family.units) > MANY_UNITS:
            self._crowded.add(name)
        self.grew = self.grew or units > 0
        return row

    def regrid(self, now: int) -> list[Family]:
        """Families that must be told otherwise from now on: whoever keeps their requests counts them anew."""
        changed = []
        for name in sorted(self._crowded):
            family = self._families.get(name)
            if family is None:
                self._crowded.discard(name)
            elif not family.coarse:
                if len(family.units) > MANY_UNITS:
                    changed.append(family)
                else:
                    self._crowded.discard(name)
            elif len(family.units) > FEW_UNITS:
                family.few_since = None
            elif family.few_since is None:
                family.few_since = now
            elif now - family.few_since >= FEW_FOR:
                changed.append(family)
        return changed

    def switch(self, family: Family) -> None:
        """Exact becomes coarse or coarse exact; its rows start from nothing."""
        family.coarse, family.few_since = not family.coarse, None
        family.units.clear()
        family.spreads.clear()
        family.told_as.clear()
        family.rows.clear()
        self._families[family.profile.fingerprint, family.group] = family

    def next_timer(self) -> int | None:
        due = [family.few_since for name in self._crowded if (family := self._families.get(name)) is not None]
        return min((since + FEW_FOR for since in due if since is not None), default=None)

    def rows(self, homes: dict[str, tuple[str, int]]) -> list[Row]:
        """All rows in canonical order; `homes` says in which domain each gang runs and how many of it."""
        found = []
        for _, family in sorted(self._families.items()):
            told: dict[Resources, int] = {}
            for _, row in sorted(family.rows.items(), key=lambda each: (each[0][0].canonical, *each[0][1:])):
                found.append(_told(family, row, _unit(row, told), homes))
        return found

    def books(self) -> list[RowBook]:
        return [row for family in self._families.values() for row in family.rows.values()]


def on_grid(unit: Resources) -> Resources:
    """Cpu and memory rounded up to five significant bits."""
    return Resources({name: _rounded(amount) if name in _ROUNDED else amount for name, amount in unit.items()})


def _rounded(amount: int) -> int:
    shift = max(0, amount.bit_length() - _BITS)
    return -(-amount >> shift) << shift


def _unit(row: RowBook, told: dict[Resources, int]) -> Resources:
    """What a row is told as: no two of a family alike."""
    unit = row.unit
    if row.family.coarse:
        exact = [kind.shape.requests for kind in row.kinds]
        unit = Resources({name: max(each.get(name) for each in exact) for name in unit.names()})
    alike = told.get(unit, 0)
    told[unit] = alike + 1
    return unit + Resources.of(memory=alike) if alike else unit


def _told(family: Family, row: RowBook, unit: Resources, homes: dict[str, tuple[str, int]]) -> Row:
    return Row(
        profile=family.profile,
        group=family.group,
        unit=unit,
        count=row.count,
        running=row.running,
        stranded=row.stranded,
        domain_units=_domain_units(row, homes),
        exclusive=row.tokens,
    )


def _domain_units(row: RowBook, homes: dict[str, tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    if row.family.group:
        home = homes.get(row.family.group)
        return () if home is None else (home,)
    strict = row.family.profile.strict_spread
    if strict is None or strict.topology_key == HOSTNAME_LABEL:
        return ()
    tallies = {
        id(tally): tally for kind in row.kinds for tally, _, _ in kind.spreads if tally.key == strict.topology_key
    }
    units: dict[str, int] = {}
    for tally in tallies.values():
        # Nodes without such a pod count too: no other domain may be too far ahead of theirs.
        for domain in tally.domains.nodes if tally.domains is not None else ():
            units.setdefault(domain, 0)
        for domain, count in tally.by_domain.items():
            units[domain] = units.get(domain, 0) + count
    return tuple(sorted(units.items()))


def _count(counts: dict[K, int], key: K, change: int) -> None:
    left = counts.get(key, 0) + change
    if left:
        counts[key] = left
    else:
        del counts[key]
