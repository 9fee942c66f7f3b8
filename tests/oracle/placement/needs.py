"""Counted entries: plain rows, strict spreads and gangs of clusters that report placement, and where their units are.

Written from docs/engine.md P1, P4, P16, P29 and P41.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cmp_to_key
from typing import TYPE_CHECKING

from bigfleet.engine.results import NeedKey
from tests.oracle.demand import Amounts, Demand, Row, added, vector
from tests.oracle.entries import compare_units
from tests.oracle.judging import HOSTNAME, bucket_dollars, same_key, strict_spread
from tests.oracle.placement.worth import has_devices

if TYPE_CHECKING:
    from bigfleet.model.profile import Profile
    from tests.oracle.supply import Unit

COMING, ACQUIRED, AWAITING = "coming", "acquired", "awaiting"


@dataclass(eq=False)
class Portion:
    """The stranded units of one row and what was found for them."""

    unit: Amounts
    count: int
    running: int
    stranded: int
    domains: Amounts
    tokens: frozenset[str]
    row: Row | None = None
    coming: int = 0
    coming_until: int = 0
    acquired: int = 0
    awaiting: int = 0
    missing_after_assign: int = 0

    @property
    def deficit(self) -> int:
        return self.stranded - self.coming - self.acquired - self.awaiting

    def got(self, source: str, units: int, until: int) -> None:
        setattr(self, source, getattr(self, source) + units)
        if source == COMING and units:
            self.coming_until = max(self.coming_until, until)


@dataclass(eq=False)
class Need:
    """One counted entry. `parts` are its rows, `portions` what is placed: the same, but for Same on hostname."""

    cluster: str
    profile: Profile
    group: str
    gang: bool
    parts: list[Portion]
    arrival: int
    overhead: Amounts
    portions: list[Portion] = field(default_factory=list)
    parked: bool = False
    # May preempt, and have what drains.
    able: bool = False
    may_acquire: bool = False

    reopens: list[Unit] = field(default_factory=list)
    taken: list[Unit] = field(default_factory=list)
    bootstraps: list[Unit] = field(default_factory=list)
    provisions: list[Unit] = field(default_factory=list)
    drains: list[Unit] = field(default_factory=list)
    victims: list[Unit] = field(default_factory=list)
    domain: str | None = None
    satisfiable: bool = False
    counts: Amounts = field(default_factory=dict)
    universe: set[str] = field(default_factory=set)

    @property
    def key(self) -> NeedKey:
        unit = "" if self.gang else vector(self.parts[0].unit).canonical
        return NeedKey(self.cluster, self.profile.fingerprint, self.group, unit)

    @property
    def spread(self) -> tuple[str, int] | None:
        return strict_spread(self.profile)

    @property
    def host(self) -> bool:
        """All of it must be on one machine."""
        return self.gang and same_key(self.profile) == HOSTNAME

    @property
    def plain(self) -> bool:
        return not self.gang and self.spread is None

    @property
    def dollars(self) -> float:
        told = self.profile.interruption_microdollars
        return told / 1_000_000 if told else bucket_dollars(self.profile.interruption_bucket)

    @property
    def lacks(self) -> bool:
        return any(part.stranded for part in self.parts)

    @property
    def has_tokens(self) -> bool:
        """Whether a unit that lacks room has some; what runs has found its machine."""
        return any(portion.stranded and portion.tokens for portion in self.portions)

    @property
    def has_devices(self) -> bool:
        """Whether a unit that lacks room asks for some."""
        return any(part.stranded and has_devices(part.unit) for part in self.parts)

    @property
    def done(self) -> bool:
        return all(part.deficit == 0 for part in self.parts)

    @property
    def satisfied(self) -> bool:
        return not any(part.stranded for part in self.parts)

    @property
    def aggregate(self) -> Amounts:
        total: Amounts = {}
        for part in self.parts:
            total = added(total, {name: amount * part.count for name, amount in part.unit.items()})
        return total

    def matches(self, unit: Unit) -> bool:
        if not unit.matches(self.profile):
            return False
        return self.spread is None or unit.lookup(self.spread[0]) is not None

    def domain_of(self, unit: Unit) -> str:
        key = same_key(self.profile) if self.gang else self.spread and self.spread[0]
        value = unit.lookup(key) if key else None
        assert value is not None
        return value

    def may_take(self, domain: str) -> int:
        """How many units a spread's domain may take now."""
        assert self.spread is not None
        fewest = min((self.counts.get(d, 0) for d in self.universe), default=0)
        return max(0, fewest + self.spread[1] - self.counts.get(domain, 0))

    def settle(self) -> None:
        """What was found for the one unit of a gang on one host was found for all its parts."""
        if not self.host or not self.portions:
            return
        whole = self.portions[0]
        for part in self.parts:
            part.coming = part.acquired = part.awaiting = 0
            part.coming_until = whole.coming_until
            for source in (COMING, ACQUIRED, AWAITING):
                if getattr(whole, source):
                    setattr(part, source, part.stranded)


def needs_of(demand: Demand) -> list[Need]:
    """Counted rows in force, rows with Same joined to gangs; gangs are not folded."""
    needs: dict[tuple[str, ...], Need] = {}
    for name, cluster in demand.clusters.items():
        for row in cluster.rows.values() if cluster.reporting else ():
            assert row.units is not None
            units = row.units
            portion = Portion(
                row.min_unit, units.count, units.running, cluster.stranded(row), units.domains, units.tokens, row
            )
            gang = same_key(row.profile) is not None
            key = (name, row.profile.fingerprint, row.group) if gang else (name, *row.key)
            if key not in needs:
                needs[key] = Need(name, row.profile, row.group, gang, [], row.arrival, cluster.overhead)
            needs[key].parts.append(portion)
    for need in needs.values():
        need.parts.sort(key=cmp_to_key(lambda a, b: compare_units(a.unit, b.unit)))
        need.portions = _on_one_host(need) if need.host else need.parts
        if need.spread:
            need.counts = dict(need.parts[0].domains)
            need.universe = set(need.counts)
    return list(needs.values())


def _on_one_host(need: Need) -> list[Portion]:
    """The gang as one unit; nothing where members run already, or where two units exclude each other."""
    stranded = [part for part in need.parts if part.stranded]
    together: Amounts = {}
    tokens: set[str] = set()
    for part in stranded:
        if part.tokens and (part.stranded > 1 or part.tokens & tokens):
            return []
        tokens |= part.tokens
        together = added(together, {name: amount * part.stranded for name, amount in part.unit.items()})
    if not stranded or any(part.running or any(part.domains.values()) for part in need.parts):
        return []
    return [Portion(together, 1, 0, 1, {}, frozenset(tokens))]
