"""A reporter that hears, after each step, what every unmet need lost and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bigfleet.engine.explain.claims import Standing, claims_of, standing_of
from bigfleet.engine.explain.losses import Holdings, lost_by

if TYPE_CHECKING:
    from bigfleet.engine.engine import Engine, StepResult
    from bigfleet.engine.explain.explanation import Lost
    from bigfleet.engine.results import NeedKey

Hearing = Callable[["NeedKey", "tuple[Lost, ...]"], None]


@dataclass(slots=True)
class LossReporter:
    """`engine.reporter = LossReporter(engine, hear)`: `hear` gets each short need with its best lost candidates."""

    engine: Engine
    hear: Hearing

    def decided(self, result: StepResult) -> None:
        latest = self.engine.latest
        if latest is None:
            return
        needs = result.verdicts.needs
        holdings = Holdings(self.engine, latest, claims_of(self.engine, result))
        for entry in result.verdicts.pending.tolist():
            if standing_of(result, entry) is Standing.SHORT:
                self.hear(needs.entry_key(entry), lost_by(holdings, entry))
