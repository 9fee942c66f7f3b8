"""Near misses: free machines that do not match a need, and the one constraint each of them fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigfleet.engine.explain.explanation import Lost, Why
from bigfleet.engine.explain.supply import meets
from bigfleet.engine.fleet.cells import IDLE, SPECULATIVE
from bigfleet.model.amounts import spoken_amounts
from bigfleet.model.taint import tolerates

if TYPE_CHECKING:
    from bigfleet.engine.explain.losses import Holdings
    from bigfleet.model.resources import Resources

# Classes looked at, cheapest first.
CLASSES = 500


def near_misses(holdings: Holdings, entry: int, classes: int, shown: int) -> list[Lost]:
    """Free classes that fail the fewest constraints, cheapest first."""
    w, usable = holdings.w, holdings.supply.usable(entry)
    free = w.k.count[:classes, IDLE] + w.k.count[:classes, SPECULATIVE]
    candidates = np.nonzero((free > 0) & ~usable)[0]
    candidates = candidates[np.argsort(w.k.price[candidates], kind="stable")][:CLASSES]
    found: dict[tuple[object, ...], tuple[int, Lost]] = {}
    for cls in candidates.tolist():
        failures = _failures(holdings, entry, cls)
        if not failures:
            continue
        why, detail = failures[0]
        for state in (IDLE, SPECULATIVE):
            count = int(w.k.count[cls, state])
            key = (holdings.kind(cls), state, why, detail, holdings.domain(entry, cls))
            if not count:
                continue
            before = found[key][1].count if key in found else 0
            found[key] = (len(failures), _miss(holdings, entry, cls, state, before + count, why, detail))
    ranked = sorted(found.values(), key=lambda each: (each[0], each[1].effective_cost, each[1].price, repr(each[1])))
    return [row for _, row in ranked[:shown]]


def _failures(holdings: Holdings, entry: int, cls: int) -> list[tuple[Why, str]]:
    w, catalog = holdings.w, holdings.engine.catalog
    profile, shape = catalog.profiles[int(w.e.prof[entry])], catalog.class_shape(cls)
    found: list[tuple[Why, str]] = []
    for requirement in profile.requirements:
        if not meets(shape, requirement):
            found.append((Why.REQUIREMENT, requirement.key))
    if not tolerates(profile.tolerations, shape.taints):
        found.append((Why.TAINT, ",".join(sorted({taint.key for taint in shape.taints if taint.blocks}))))
    spread = int(w.p.spread[int(w.e.prof[entry])])
    if spread >= 0 and int(w.k.dom[cls, spread]) < 0:
        found.append((Why.REQUIREMENT, catalog.keys[spread]))
    span = slice(int(w.e.part[entry]), int(w.e.part[entry]) + int(w.e.parts[entry]))
    overhead, units = w.c.overhead[int(w.e.cluster[entry])], w.parts.unit[span]
    have = np.maximum(w.k.alloc[cls] - overhead, 0)
    small = (units > have).any(axis=1)
    if small.all() and len(small):
        bare = np.nonzero((units <= w.k.alloc[cls]).all(axis=1))[0]
        unit = units[int(bare[0]) if len(bare) else 0]
        amounts = holdings.latest.result.verdicts.needs.amounts
        short = unit > have
        if len(bare):
            asked, there, taken = (
                _spoken(amounts(np.where(short, each, 0))) for each in (unit, w.k.alloc[cls], overhead)
            )
            found.append((Why.OVERHEAD, f"{asked} of {there} less {taken}"))
        else:
            found.append((Why.TOO_SMALL, ",".join(sorted(amounts(np.where(short, unit, 0)).names()))))
    return found


def _spoken(amounts: Resources) -> str:
    return spoken_amounts(amounts.to_wire()).replace(", ", " and ")


def _miss(holdings: Holdings, entry: int, cls: int, state: int, count: int, why: Why, detail: str) -> Lost:
    return Lost(
        *holdings.kind(cls), holdings.domain(entry, cls), state, count, *holdings.cost(entry, cls), why, detail,
        None, "", None,
    )  # fmt: skip
