"""Runs families and holds what comes out against the judge's table.

Owns which replays are made and how figures of several seeds become one row. The candidate is the product, operators,
shard and engine, as `fleet` runs it; rivals are replayed on the same traces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bench.quality.account import Outcome
from bench.quality.autoscaler import HOLDS_S, Autoscaler
from bench.quality.bounds import BoundOverTime, Program, over_time
from bench.quality.demand import Trace
from bench.quality.families import Family
from bench.quality.fleet import Fleet
from bench.quality.greedy import Greedy
from bench.quality.scheduler import EMPTIEST, SCORINGS, Scheduler
from bench.quality.sums import Sums
from bench.quality.world import BOOT_S, CYCLE_S, Policy, World

Maker = Callable[[World, float], Policy]
Tell = Callable[[str], None]
# Eviction tokens per old pod; a budget is never spent to the last token.
CURVE = (0.0, 0.02, 0.05, 0.10, 0.20)
_SPENT = 0.9
REPACKINGS = 12
HOURS = 12.0
LATE, BOUGHT_BACK = 0.005, 0.15
_JUDGED = (
    "ratio",
    "evicted",
    "late",
    "unexplained",
    "service_wait_p99",
    "bought_back",
    "at_rest",
    "pinned_evicted",
)


RIVALS: dict[str, Callable[[World, float], Policy]] = {"sums": Sums, "autoscaler": Autoscaler}


def engine(world: World, evictions: float, *, own_proportion: bool = False) -> Policy:
    return Fleet(world, own_proportion=own_proportion, eviction_rate=evictions * _SPENT)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. Rivals and the curve are replayed with the default scheduler only, the curve on the first seed; of
    each trace only the first `hours` are, except where a day is what is judged."""

    seeds: tuple[int, ...] = (1, 2, 3)
    rival_seeds: tuple[int, ...] = (1,)
    curve: bool = True
    hours: float = HOURS


def replay(family: Family, trace: Trace, scoring: str, make: Callable[[World], Policy]) -> Outcome:
    world = World(trace, family.kinds, Scheduler(scoring), family.racks)
    return world.run(make(world)).outcome()


def static_ratio(family: Family, trace: Trace) -> float:
    """One purchase for every pod of the trace at once, over its bound."""
    counts = np.bincount(trace.cls, minlength=len(trace.classes)).astype(np.int64)
    bound = Program(trace.classes, family.kinds).solve(counts).dollars
    return Greedy(trace.classes, family.kinds).dollars(counts) / bound


def repacked(family: Family, trace: Trace) -> float:
    """Dollars of the purchase that is made anew at every instant for free: no lower bound, but a sight of it."""
    greedy = Greedy(trace.classes, family.kinds)
    times = (np.arange(REPACKINGS) + 0.5) * trace.horizon / REPACKINGS
    return float(np.mean([greedy.dollars(trace.counts(at)) for at in times]) * trace.horizon / 3600)


def judge(family: Family, plan: Plan, tell: Tell = lambda _text: None) -> dict[str, Any]:
    """All figures of one family, over its seeds."""
    seeds = [_seed(family, plan, seed, seed == plan.seeds[0], tell) for seed in plan.seeds]
    row: dict[str, Any] = {"about": family.about, "limits": asdict(family.limits), "seeds": seeds}
    row["summary"] = summary = _summary(seeds)
    row["checks"] = checks(family, summary)
    row["missed"] = sorted(name for name, check in row["checks"].items() if not check["held"])
    return row


def _seed(family: Family, plan: Plan, seed: int, first: bool, tell: Tell) -> dict[str, Any]:
    whole = family.build(seed)
    trace = whole if family.shared_base else whole.first(plan.hours * 3600)
    tell(f"{family.name} seed {seed}: {len(trace)} pods, bound")
    clusters = trace.clusters if family.shared_base else 1
    bound = over_time(trace, Program(trace.classes, family.kinds, clusters), float(np.mean(BOOT_S)))
    figures: dict[str, Any] = {
        "seed": seed,
        "hours": round(trace.horizon / 3600, 2),
        "pods": len(trace),
        "classes": len(trace.classes),
        "fewest_alive": bound.fewest,
        "bound_dollars": round(bound.dollars, 2),
        "bound_boot_dollars": round(bound.boot_dollars, 2),
    }
    if family.limits.static is not None:
        figures["static"] = round(static_ratio(family, whole), 4)
    if not family.shared_base:
        figures["repacked"] = round(repacked(family, trace) / bound.dollars, 4)
    for scoring in SCORINGS:
        tell(f"{family.name} seed {seed}: {scoring} first")
        outcome = replay(family, trace, scoring, lambda world: engine(world, family.limits.evicted))
        figures[scoring] = _figures(outcome, bound)
    figures["own_proportion"] = {}
    for scoring in SCORINGS:
        tell(f"{family.name} seed {seed}: {scoring} first, pods prefer their own proportion")
        outcome = replay(
            family, trace, scoring, lambda world: engine(world, family.limits.evicted, own_proportion=True)
        )
        figures["own_proportion"][scoring] = _figures(outcome, bound)
    if seed in plan.rival_seeds:
        figures["rivals"] = _rivals(family, trace, bound, tell)
        if family.shared_base:
            tell(f"{family.name} seed {seed}: not sharing")
            alone = replay(family, trace, EMPTIEST, lambda world: Fleet(world, shared=False))
            figures["not_shared"] = _figures(alone, bound)
    if plan.curve and first:
        figures["curve"] = {}
        for share in CURVE:
            tell(f"{family.name} seed {seed}: curve at {share:.0%}")
            outcome = replay(family, trace, EMPTIEST, lambda world, share=share: engine(world, share))
            figures["curve"][f"{share:.2f}"] = _figures(outcome, bound)
    return figures


def _rivals(family: Family, trace: Trace, bound: BoundOverTime, tell: Tell) -> dict[str, Any]:
    """Each rival at its best hold."""
    found = {}
    for name, rival in RIVALS.items():
        best: dict[str, Any] | None = None
        for hold in HOLDS_S:
            tell(f"{family.name} seed {trace.seed}: {name}, hold {hold:.0f} s")
            outcome = replay(family, trace, EMPTIEST, lambda world, rival=rival, hold=hold: rival(world, hold))
            figures = {"hold_s": hold, **_figures(outcome, bound)}
            if best is None or figures["ratio"] < best["ratio"]:
                best = figures
        found[name] = best
    return found


def _figures(outcome: Outcome, bound: BoundOverTime) -> dict[str, Any]:
    fields = {name: round(value, 4) if isinstance(value, float) else value for name, value in asdict(outcome).items()}
    return {"ratio": round(outcome.dollars / bound.dollars, 4), **fields}


def _summary(seeds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over seeds, and the spread of what is judged by a ratio."""

    def spread(values: list[float]) -> dict[str, float]:
        return {"mean": round(float(np.mean(values)), 4), "least": min(values), "most": max(values)}

    def judged(scored: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {
            scoring: {name: spread([float(each[scoring][name]) for each in scored]) for name in _JUDGED}
            for scoring in SCORINGS
        }

    summary: dict[str, Any] = {}
    for name in ("static", "repacked"):
        if name in seeds[0]:
            summary[name] = spread([each[name] for each in seeds])
    summary |= judged(seeds)
    summary["own_proportion"] = judged([each["own_proportion"] for each in seeds])
    against = [each for each in seeds if "rivals" in each]
    if against:
        # Compared on the same seeds only.
        summary["beside_rivals"] = spread([each[EMPTIEST]["ratio"] for each in against])
        summary["rivals"] = {name: spread([each["rivals"][name]["ratio"] for each in against]) for name in RIVALS}
    alone = [each["not_shared"]["ratio"] for each in seeds if "not_shared" in each]
    if alone:
        summary["not_shared"] = spread(alone)
    return summary


def checks(family: Family, summary: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every sentence of the judge that this run can hold to account: measured, limit, held."""
    limits = family.limits
    found: dict[str, dict[str, Any]] = {}

    def at_most(name: str, measured: float, limit: float) -> None:
        found[name] = {"measured": round(measured, 4), "limit": round(limit, 4), "held": measured <= limit}

    if limits.static is not None:
        at_most("static", summary["static"]["mean"], limits.static)
    for scoring, limit in zip(SCORINGS, (limits.emptiest, limits.fullest), strict=True):
        row = summary[scoring]
        at_most(f"{scoring}: dollars over bound", row["ratio"]["mean"], limit)
        at_most(f"{scoring}: evicted", row["evicted"]["most"], limits.evicted)
        at_most(f"{scoring}: pods later than boot and three cycles", row["late"]["mean"], LATE)
        at_most(f"{scoring}: late pods without a cause", row["unexplained"]["most"], 0)
        at_most(f"{scoring}: service wait p99", row["service_wait_p99"]["mean"], BOOT_S[1] + 2 * CYCLE_S)
        at_most(f"{scoring}: bought back", row["bought_back"]["mean"], BOUGHT_BACK)
        at_most(f"{scoring}: without room at rest", row["at_rest"]["most"], 0)
        at_most(f"{scoring}: pinned evicted", row["pinned_evicted"]["most"], 0)
    for name, row in summary.get("rivals", {}).items():
        share = 0.8 if family.shared_base and name == "autoscaler" else 1.0
        at_most(f"emptiest: below {name}", summary["beside_rivals"]["mean"], share * row["mean"])
    if "not_shared" in summary:
        at_most("emptiest: sharing not dearer", summary["beside_rivals"]["mean"], summary["not_shared"]["mean"])
    return found
