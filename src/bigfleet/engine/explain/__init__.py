"""Why a need got what it got: what serves it and what that costs, what it lost to whom, and what would satisfy it.

Computed on demand from what the last step left behind; a step allocates nothing for it. Questions about changes are
answered by trying them on copies of the engine (`whatif`), so their cost is that of a few steps.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from bigfleet.engine.explain.claims import Standing, claims_of, find_entry, standing_of
from bigfleet.engine.explain.explanation import (
    REMEDIES,
    Explanation,
    Granted,
    HigherPriority,
    Lost,
    MoreSupply,
    Remedy,
    RemedyKind,
    Source,
    Why,
    WithoutConstraint,
)
from bigfleet.engine.explain.losses import Holdings, lost_by
from bigfleet.engine.explain.remedies import Case, Trials, first_remedy
from bigfleet.engine.explain.reporter import LossReporter
from bigfleet.engine.explain.whatif import copied

if TYPE_CHECKING:
    from bigfleet.engine.engine import Engine
    from bigfleet.engine.results import NeedKey

# Copies stepped before a search gives up, shared by the kinds of changes: about a second for 500,000 machines.
TRIALS = 18


def explain(
    engine: Engine, key: NeedKey, kinds: tuple[RemedyKind, ...] = REMEDIES, trials: int = TRIALS
) -> Explanation:
    """Explains the last step's decision about a need; KeyError when the demand in force has no such need."""
    latest = engine.latest
    entry = find_entry(engine, latest.result, key) if latest is not None else -1
    if latest is None or entry < 0:
        raise KeyError(f"no need {key} in the demand in force")
    result = latest.result
    holdings = Holdings(engine, latest, claims_of(engine, result))
    (verdict,) = result.verdicts.of(np.array([entry]))
    granted = holdings.granted(entry)
    standing = standing_of(result, entry)
    held: Counter[str | None] = Counter()
    for each in granted:
        held[each.domain] += each.count
    case = Case(engine, result, entry, Trials(trials), held)
    remedy = first_remedy(case, kinds) if standing is Standing.SHORT else None
    return Explanation(
        key=verdict.key,
        verdict=verdict,
        granted=granted,
        price_per_hour=sum(each.price * each.count for each in granted),
        effective_cost_per_hour=sum(each.effective_cost * each.count for each in granted),
        awaits_drain=standing is Standing.AWAITS_DRAIN,
        lost=lost_by(holdings, entry) if standing is Standing.SHORT else (),
        remedy=remedy,
        remedy_at=case.at,
        trials=case.trials.made,
        exhausted=standing is not Standing.SHORT or remedy is not None or not case.trials.refused,
    )


__all__ = [
    "REMEDIES",
    "TRIALS",
    "Explanation",
    "Granted",
    "HigherPriority",
    "LossReporter",
    "Lost",
    "MoreSupply",
    "Remedy",
    "RemedyKind",
    "Source",
    "Why",
    "WithoutConstraint",
    "copied",
    "explain",
]
