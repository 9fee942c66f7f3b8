"""The two engines behind one face: every behaviour test runs against both and sees plain rows from either."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bigfleet.engine import Engine
from bigfleet.engine.batches import Conditions
from tests.oracle.step import Oracle, OracleResult

if TYPE_CHECKING:
    from bigfleet.engine.batches import DemandBatch, MachineBatch
    from bigfleet.engine.policy import Policy


class EngineRows:
    """The engine with its columns rendered as the rows the oracle gives; one that `gives_back` numbers everything anew
    before each step and looks over its tables after it."""

    def __init__(self, *, gives_back: bool = False) -> None:
        self.engine = Engine()
        self.gives_back = gives_back

    def step(
        self,
        machines: MachineBatch | None,
        demand: DemandBatch | None,
        policy: Policy,
        now: int,
        conditions: Conditions | None = None,
    ) -> OracleResult:
        if self.gives_back:
            self.engine.give_back()
        result = self.engine.step(machines, demand, policy, now, conditions or Conditions())
        if self.gives_back:
            self.engine.validate()
        return OracleResult(
            actions=list(result.actions.rows()),
            verdicts=list(result.verdicts.rows()),
            shortfalls=list(result.shortfalls.rows()),
            rejected=dict(result.rejected),
            rollups=dict(result.rollups),
            deferred=int(result.deferred),
            capped=int(result.capped),
            aborted=list(result.aborted),
            doubted=list(result.doubted),
        )


BOTH = pytest.mark.parametrize("make", [pytest.param(Oracle, id="oracle"), pytest.param(EngineRows, id="engine")])
