"""Shortfalls: rows nobody can answer yet, how old they are and when they escalate (§7)."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from bigfleet.engine.decide.credit import anything
from bigfleet.engine.decide.gang import parked_at
from bigfleet.engine.decide.need_names import Needs
from bigfleet.engine.decide.world import Rules, World
from bigfleet.engine.demand.rows import GANG, NO_TIME, PARKED, PLAIN
from bigfleet.engine.kernels.jit import I4, inner, kernel
from bigfleet.engine.outcome.units import UnitOutcome
from bigfleet.engine.outcome.verdict import FreeSupply, VerdictBatch
from bigfleet.engine.policy import Policy
from bigfleet.engine.results import Shortfall

_NEVER = 9223372036854775807


class ShortfallBatch(Struct, frozen=True, eq=False):
    """Parts that stay short; rows by priority, age and key; valid until the engine's next step."""

    part: NDArray[np.int32]
    entry: NDArray[np.int32]
    now: int
    policy: Policy
    needs: Needs
    verdicts: VerdictBatch | None = None

    def __len__(self) -> int:
        return len(self.part)

    def rows(self) -> list[Shortfall]:
        needs, w = self.needs, self.needs.current
        if not len(self.part):
            return []
        since = w.parts.since[self.part]
        columns = (
            self.entry,
            self.part,
            w.p.priority[w.e.prof[self.entry]],
            since,
            (self.now - since) // self.policy.cycle_ns + 1,
            self.now - since >= self.policy.escalate_after_ns,
            w.e.kind[self.entry] != PLAIN,
            w.parts.unit[self.part],
            w.parts.rest[self.part],
        )
        found = [
            Shortfall(
                needs.named_key(entry, needs.known_amounts(tuple(unit)).canonical),
                priority,
                needs.part_amounts(entry, part, tuple(rest)),
                begun,
                age,
                escalated,
                constrained,
            )
            for entry, part, priority, begun, age, escalated, constrained, unit, rest in zip(
                *(column.tolist() for column in columns), strict=True
            )
        ]
        if self.verdicts is not None and self.verdicts.units is not None:
            self._tell_units(self.verdicts, self.verdicts.units, found)
        found.sort(key=_listed)
        return found

    def _tell_units(self, verdicts: VerdictBatch, outcome: UnitOutcome, found: list[Shortfall]) -> None:
        """Counted rows tell units, what comes and why."""
        w, causes, supply = self.needs.current, outcome.told, None
        for at, (part, entry) in enumerate(zip(self.part.tolist(), self.entry.tolist(), strict=True)):
            if not outcome.is_counted(entry):
                continue
            if entry not in causes:
                if supply is None:
                    supply = FreeSupply(self.needs, self.policy, outcome.freed)
                causes[entry] = (verdicts.cause(entry, supply), outcome.portions(entry))
            cause, portions = causes[entry]
            coming, _, acquired, awaiting = portions.get(part, (0, 0, 0, 0))
            lacking = int(w.rows.lacking[w.parts.row[part]])
            on_their_way, row = coming + acquired + awaiting, found[at]
            found[at] = Shortfall(
                row.key,
                row.priority,
                row.deficit,
                row.since,
                row.age,
                row.escalated,
                row.topology_constrained,
                units=lacking - on_their_way,
                coming=on_their_way,
                cause=cause,
            )


def _listed(each: Shortfall) -> tuple[object, ...]:
    # Python orders texts by code point, which is the order of their UTF-8 bytes.
    key = each.key
    return (-each.priority, -each.age, key.cluster, key.fingerprint, key.group, key.min_unit)


@kernel
def age_parts(w: World, order: I4, short: I4, count: int, now: int, part_of: I4, entry_of: I4) -> int:
    """Starts, keeps or ends each short part's run of shortfalls (and a gang's parking age); lists those that stay."""
    found = 0
    for i in range(count):
        entry = order[short[i]]
        before = found
        for part in range(w.e.part[entry], w.e.part[entry] + w.e.parts[entry]):
            if not anything(w.parts.rest, part):
                w.parts.since[part] = NO_TIME
                continue
            if w.parts.since[part] == NO_TIME:
                w.parts.since[part] = now
            part_of[found] = part
            entry_of[found] = entry
            found += 1
        if found == before and w.e.kind[entry] == GANG:
            # Draining supply and victims answer all of it: parked, it could not take what was drained for it.
            w.e.parked_since[entry] = NO_TIME
    return found


@inner
def _next_parking(w: World, rules: Rules, entry: int) -> int:
    """When the gang's parking changes next."""
    since = w.e.parked_since[entry]
    if w.e.kind[entry] != GANG:
        return _NEVER
    if since == NO_TIME:
        # It rested in this step and does not in the next.
        return rules.now if w.e.flags[entry] & PARKED else _NEVER
    age = (rules.now - since) // rules.cycle
    if parked_at(since, rules.now, rules.cycle, rules.park_after, rules.reprobe_every):
        age = (age // rules.reprobe_every + 1) * rules.reprobe_every
    elif age < rules.park_after:
        age = rules.park_after
        if age % rules.reprobe_every == 0:
            age += 1
    else:
        age += 1
    return since + age * rules.cycle


@kernel
def next_change(w: World, rules: Rules, part_of: I4, shortfalls: int, escalate_after: int, clusters: int) -> int:
    """The earliest instant at which a shortfall escalates or a gang is parked or probed again."""
    best = _NEVER
    for i in range(shortfalls):
        due = w.parts.since[part_of[i]] + escalate_after
        if rules.now < due < best:
            best = due
    for cluster in range(clusters):
        for owner in range(w.units.first[cluster], w.units.first[cluster] + w.units.count[cluster]):
            if w.owners.timed[owner] == 0:
                continue
            start = w.owners.entry[owner]
            for entry in range(start, start + w.owners.entries[owner]):
                best = min(best, _next_parking(w, rules, entry))
    return best


@kernel
def count_parts(w: World, order: I4, short: I4, count: int) -> int:
    total = 0
    for i in range(count):
        total += w.e.parts[order[short[i]]]
    return total
