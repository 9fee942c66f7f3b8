"""The first single change that would satisfy a need: more supply, a higher priority, or one constraint less.

Every change is tried on a copy of the engine before it is named: nothing here reasons about what the engine would do.
A change satisfies a need when nothing of it remains after Preempt, be it that victims still have to drain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from bigfleet.engine.batches import Conditions, DemandBatch, Ids, MachineBatch, Rollup, Shape
from bigfleet.engine.catalog.odd import ODD
from bigfleet.engine.demand.odd_rows import odd_amounts
from bigfleet.engine.demand.rows import NO_TIME, PARKED
from bigfleet.engine.explain.claims import Standing, entry_of_row, rows_of, rows_of_entry, standing_of
from bigfleet.engine.explain.explanation import HigherPriority, MoreSupply, Remedy, RemedyKind, WithoutConstraint
from bigfleet.engine.explain.supply import Offer, offers_for
from bigfleet.engine.explain.whatif import stepped
from bigfleet.engine.fleet.cells import CONFIGURED, IDLE
from bigfleet.engine.placement import Counted
from bigfleet.model.profile import Profile
from bigfleet.model.resources import Resources

if TYPE_CHECKING:
    from bigfleet.engine.decide.need_names import Needs
    from bigfleet.engine.decide.world import World
    from bigfleet.engine.engine import Engine, StepResult
    from bigfleet.model.requirement import Requirement
    from bigfleet.model.spread import Spread

HIGHEST = 2**31 - 1
# Machines of a trial are named behind all others, so that they change no tie between those.
NAME = "\U0010ffff{:08}"
# A trial holds its machines in memory; more than twice what a shard serves are not tried, and that is told.
MOST_MACHINES = 1 << 20
# Trials that make a count that is enough the smallest one; they come on top: there is an answer already.
REFINEMENTS = 24
# Up to so many distinct priorities are tried one by one, more are bisected.
FEW_PRIORITIES = 8

RowKey = tuple[Profile, str, bytes]


@dataclass
class Trials:
    """Counts what was tried; `left` trials remain, `kept` of them for later searches. `refused` tells that something
    was not tried."""

    left: int
    made: int = 0
    refused: bool = False
    kept: int = 0
    refinements: int = REFINEMENTS

    def share(self, searches: int) -> None:
        """So many searches are still to come, this one included: none may use up what the others need."""
        self.kept = self.left - -(-self.left // searches)

    @property
    def over(self) -> bool:
        return self.left <= self.kept

    def one_more(self) -> bool:
        if self.over:
            self.refused = True
            return False
        self.left -= 1
        self.made += 1
        return True

    def refine(self) -> bool:
        """One more look for a smaller count."""
        if self.refinements <= 0:
            return False
        self.refinements -= 1
        self.made += 1
        return True


@dataclass
class Case:
    """One short entry, the rows of demand behind it and the instant at which changes are judged."""

    engine: Engine
    result: StepResult
    entry: int
    trials: Trials
    # Machines that serve it already, by their value of what it is spread over or kept together in.
    held: Counter[str | None] = field(default_factory=Counter)
    at: int = 0
    rows: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        w, policy = self.result.verdicts.needs.current, self.result.verdicts.policy
        self.rows = rows_of_entry(w, self.entry)
        self.at = self.result.now
        since = int(w.e.parked_since[self.entry])
        # A counted gang is woken by the machines of a trial (P17), and by another profile it is another gang; at its
        # next probe its cluster's last word would be too old for anything.
        counted = int(w.c.counted[self.cluster]) != 0
        if int(w.e.flags[self.entry]) & PARKED and since != NO_TIME and not counted:
            age = (self.at - since) // policy.cycle_ns
            probe = (age // policy.reprobe_every_cycles + 1) * policy.reprobe_every_cycles
            self.at = since + probe * policy.cycle_ns

    @property
    def cluster(self) -> int:
        return int(self.result.verdicts.needs.current.e.cluster[self.entry])

    def key_of(self, row: int) -> RowKey:
        w, catalog = self.result.verdicts.needs.current, self.engine.catalog
        profile = catalog.profiles[int(w.rows.prof[row])]
        return profile, catalog.texts.texts[int(w.rows.group[row])], w.rows.unit[row].tobytes()


def first_remedy(case: Case, kinds: tuple[RemedyKind, ...]) -> Remedy | None:
    """The first change that helps, in the order of `kinds`."""
    searches: dict[RemedyKind, Callable[[Case], Remedy | None]] = {
        RemedyKind.SUPPLY: _supply,
        RemedyKind.PRIORITY: _priority,
        RemedyKind.CONSTRAINT: _constraint,
    }
    for number, kind in enumerate(kinds):
        case.trials.share(len(kinds) - number)
        found = searches[kind](case)
        if found is not None:
            return found
    return None


# ---- more supply ---------------------------------------------------------------------------------------------------


def _supply(case: Case) -> Remedy | None:
    for offer in offers_for(case.engine, case.result, case.entry, case.held):
        if case.trials.over:
            case.trials.refused = True
            return None
        enough = _some(case, offer)
        if enough:
            return MoreSupply(offer.shape, _fewest(case, offer.shape, enough), offer.domain_key, offer.domain)
    return None


def _some(case: Case, offer: Offer) -> int:
    """A count of machines that is enough, 0 if none is."""
    for count in (offer.least,) if offer.most <= offer.least else (offer.least, offer.most):
        if count > MOST_MACHINES:
            case.trials.refused = True
            return 0
        if case.trials.one_more() and _with_machines(case, offer.shape, count):
            return count
    return 0


def _fewest(case: Case, shape: Shape, enough: int) -> int:
    """The smallest count that is enough, as far as the refinements go: ever larger steps down, then halves."""
    short, step = 0, 1
    while enough - short > 1 and case.trials.refine():
        count = max(short + 1, enough - step) if not short else (short + enough) // 2
        if _with_machines(case, shape, count):
            enough, step = count, step * 2
        else:
            short = count
    return enough


def _with_machines(case: Case, shape: Shape, count: int) -> bool:
    return _answered(case, *stepped(case.engine, case.at, machines=idle_machines(shape, count)))


def idle_machines(shape: Shape, count: int) -> MachineBatch:
    """So many new Idle machines of a shape."""
    nobody = np.full(count, -1, np.int32)
    return MachineBatch(
        ids=Ids.of(NAME.format(n) for n in range(count)),
        state=np.full(count, IDLE, np.uint8),
        shape=np.zeros(count, np.int32),
        cluster=nobody,
        stamp=nobody,
        not_before=np.zeros(count, np.int64),
        shapes=(shape,),
    )


# ---- other demand --------------------------------------------------------------------------------------------------


def _priority(case: Case) -> Remedy | None:
    levels = _priorities_above(case)
    if len(levels) <= FEW_PRIORITIES:
        for level in levels:
            if _at_priority(case, level + 1):
                return HigherPriority(level)
        return None
    if not _at_priority(case, levels[-1] + 1):
        return None
    low, high = -1, len(levels) - 1
    while high - low > 1:
        middle = (low + high) // 2
        answer = _at_priority(case, levels[middle] + 1)
        if answer is None:
            break
        low, high = (low, middle) if answer else (middle, high)
    return HigherPriority(levels[high])


def _priorities_above(case: Case) -> list[int]:
    """Priorities that decide something and could be exceeded: those of needs, and of stamps where no need claims."""
    w = case.result.verdicts.needs.current
    mine = case.result.verdicts.needs.priority(case.entry)
    clusters = len(case.engine.fleet.clusters)
    found = [np.array([mine])]
    for start, count in zip(w.c.start[:clusters].tolist(), w.c.entries[:clusters].tolist(), strict=True):
        found.append(w.p.priority[w.e.prof[start : start + count]])
    bound = w.cells.stamp[(w.cells.state == CONFIGURED) & (w.cells.count > 0)]
    found.append(w.bind.priority[bound])
    return [int(level) for level in np.unique(np.concatenate(found)) if mine <= level < HIGHEST]


def _at_priority(case: Case, priority: int) -> bool | None:
    return _with_profiles(case, lambda profile: profile.with_(priority=priority))


def _constraint(case: Case) -> Remedy | None:
    profiles = [case.key_of(row)[0] for row in case.rows]
    tried: set[str] = set()
    for text, drop in (each for profile in profiles for each in _constraints(profile)):
        if text in tried:
            continue
        tried.add(text)
        if _with_profiles(case, drop):
            return WithoutConstraint(text)
    return None


def _constraints(profile: Profile) -> Iterator[tuple[str, Callable[[Profile], Profile]]]:
    """Each constraint of a profile, as text, with a way to drop it."""
    for requirement in profile.requirements:
        text = f"{requirement.key}:{int(requirement.operator)}:{','.join(requirement.values)};"
        yield text, partial(_without, requirement)
    for spread in profile.spread:
        if spread.strict:
            yield f"{spread.topology_key}:{spread.max_skew}:{int(spread.when)};", partial(_without, spread)


def _without(gone: Requirement | Spread, profile: Profile) -> Profile:
    return profile.with_(
        requirements=[each for each in profile.requirements if each != gone],
        spread=[each for each in profile.spread if each != gone],
    )


def _with_profiles(case: Case, change: Callable[[Profile], Profile]) -> bool | None:
    """Whether the need would be answered if its rows had other profiles."""
    if not case.trials.one_more():
        return None
    w, units = case.result.verdicts.needs.current, case.result.verdicts.units
    if units is not None and units.is_counted(case.entry) and not units.fresh[case.cluster]:
        # The trial's roll-up would be heard, which the cluster's own was not.
        return False
    changed = {row: change(case.key_of(row)[0]) for row in case.rows}
    asked = rollup_of(case.engine, case.result, case.cluster, changed)
    link = (asked.cluster, bool(w.c.connected[case.cluster]))
    wanted = [(changed[row], *case.key_of(row)[1:]) for row in case.rows]
    trial = stepped(
        case.engine, case.at, demand=DemandBatch([asked], [link]), conditions=_backed_off_still(case, changed)
    )
    return _answered(case, *trial, wanted)


def _backed_off_still(case: Case, changed: dict[int, Profile]) -> Conditions | None:
    """Kinds that did not help its rows help them no more under another name: the pods are the same (P11)."""
    latest, key = case.engine.latest, case.result.verdicts.needs.entry_key(case.entry)
    mine = [each for each in latest.conditions.backoffs if each.row == key] if latest is not None else []
    if latest is None or not mine:
        return None
    names = {profile.fingerprint for profile in changed.values()}
    more = [replace(each, row=structs.replace(key, fingerprint=name)) for each in mine for name in sorted(names)]
    return replace(latest.conditions, backoffs=(*latest.conditions.backoffs, *more))


def rollup_of(engine: Engine, result: StepResult, cluster: int, changed: dict[int, Profile]) -> Rollup:
    """A cluster's demand in force as a roll-up, some rows under other profiles."""
    needs = result.verdicts.needs
    w, catalog = needs.current, engine.catalog
    rows = rows_of(w, cluster)
    span = slice(rows.start, rows.stop)
    profiles = [changed.get(row, catalog.profiles[int(w.rows.prof[row])]) for row in rows]
    distinct = {each.fingerprint: each for each in profiles}
    place = {fingerprint: number for number, fingerprint in enumerate(distinct)}
    groups, group = np.unique(w.rows.group[span], return_inverse=True)
    names, aggregate, min_unit = tuple(catalog.resources), w.rows.agg[span], w.rows.unit[span]
    if ODD in names and (aggregate[:, catalog.resource(ODD)].any() or min_unit[:, catalog.resource(ODD)].any()):
        units = [needs.amounts(w.rows.unit[row]) for row in rows]
        asked = [_asked(needs, cluster, row) for row in rows]
        names = tuple(sorted({name for each in (*units, *asked) for name in each.names()}))
        aggregate, min_unit = _matrix(asked, names), _matrix(units, names)
    return Rollup(
        cluster=engine.fleet.clusters[cluster],
        profiles=tuple(distinct.values()),
        groups=tuple(catalog.texts.texts[number] for number in groups.tolist()),
        resources=names,
        profile=np.array([place[each.fingerprint] for each in profiles], np.int32),
        group=group.astype(np.int32),
        aggregate=aggregate[:, : len(names)].copy(),
        min_unit=min_unit[:, : len(names)].copy(),
        overhead=needs.amounts(w.c.overhead[cluster]),
        counted=_units_of(engine, w, cluster),
    )


def _matrix(vectors: list[Resources], names: tuple[str, ...]) -> NDArray[np.int64]:
    return np.array([[each.get(name) for name in names] for each in vectors], np.int64).reshape(
        len(vectors), len(names)
    )


def _asked(needs: Needs, cluster: int, row: int) -> Resources:
    """The aggregate of a row."""
    w, odd = needs.current, needs.catalog.resource(ODD)
    amounts = w.rows.agg[row]
    unit = int(w.rows.unit[row, odd]) if odd >= 0 and w.c.counted[cluster] else 0
    if not unit:
        return needs.amounts(amounts)
    times, pairs = odd_amounts(int(amounts[odd]), unit, needs.catalog.odd)
    plain = amounts.copy()
    plain[odd] = 0
    more = {name: times * amount for name, amount in pairs}
    return Resources(dict(needs.amounts(plain).items()) | more, limit=2**63)


def _units_of(engine: Engine, w: World, cluster: int) -> Counted | None:
    """What a cluster that reports placement says of its rows beside amounts."""
    if not w.c.counted[cluster]:
        return None
    rows = rows_of(w, cluster)
    said = engine.demand.sparse(engine.fleet.clusters[cluster])
    span = slice(rows.start, rows.stop)
    return Counted(
        count=w.rows.count[span].astype(np.int32),
        running=w.rows.running[span].astype(np.int32),
        stranded=w.rows.lacking[span].astype(np.int32),
        mirror_version=int(engine.nodes.s.seen_version[cluster]),
        domain_units={row: tuple(domains.items()) for row, domains in said.domains.items()},
        exclusive={row: tuple(sorted(tokens)) for row, tokens in said.tokens.items()},
    )


def _answered(case: Case, trial: Engine, result: StepResult, wanted: list[RowKey] | None = None) -> bool:
    """Whether nothing of the need's rows remains after a trial's step."""
    keys = {_row_name(*key) for key in (wanted or [case.key_of(row) for row in case.rows])}
    w, catalog = result.verdicts.needs.current, trial.catalog
    found: NDArray[np.int64] = np.array(rows_of(w, case.cluster), np.int64)
    for row in found.tolist():
        profile = catalog.profiles[int(w.rows.prof[row])]
        group = catalog.texts.texts[int(w.rows.group[row])]
        if _row_name(profile, group, w.rows.unit[row].tobytes()) in keys:
            entry = entry_of_row(w, case.cluster, row)
            if entry < 0 or standing_of(result, entry) is Standing.SHORT:
                return False
    return True


def _row_name(profile: Profile, group: str, unit: bytes) -> tuple[str, str, bytes]:
    return profile.fingerprint, group, unit
