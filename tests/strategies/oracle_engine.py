"""The oracle where an engine is expected: whole shards and simulations can be decided by it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from bigfleet.shard.contract.step_result import Listed
from tests.oracle.step import Oracle

if TYPE_CHECKING:
    from bigfleet.engine.batches import Conditions, DemandBatch, MachineBatch
    from bigfleet.engine.policy import Policy
    from bigfleet.engine.results import AvailableCapacity, Verdict


class ListedVerdicts:
    """Verdicts that exist already."""

    def __init__(self, verdicts: list[Verdict]) -> None:
        self._verdicts = verdicts

    def rows(self) -> list[Verdict]:
        return self._verdicts

    def unmet(self) -> list[Verdict]:
        return [verdict for verdict in self._verdicts if not verdict.satisfied]


class OracleEngine:
    """Decides as the oracle does; it gives no hints of capacity."""

    def __init__(self) -> None:
        self._oracle = Oracle()

    def step(
        self,
        machines: MachineBatch | None,
        demand: DemandBatch | None,
        policy: Policy,
        now: int,
        conditions: Conditions | None = None,
        probe: object = None,
    ) -> Any:
        found = self._oracle.step(machines, demand, policy, now, conditions)
        return SimpleNamespace(
            actions=Listed(tuple(found.actions)),
            verdicts=ListedVerdicts(list(found.verdicts)),
            shortfalls=Listed(tuple(found.shortfalls)),
            rejected=found.rejected,
            rollups=found.rollups,
            deferred=found.deferred,
            capped=found.capped,
            aborted=tuple(getattr(found, "aborted", ())),
            doubted=tuple(found.doubted),
            refused={},
        )

    def available_capacity(self, cluster: str) -> list[AvailableCapacity]:
        return []
