"""A policy with a number nobody meant is refused before anything is decided by it."""

from __future__ import annotations

from typing import Any

import pytest

from bigfleet.engine.policy import IdleHold, Placement, Policy, RollupGuard, VictimWeights


@pytest.mark.parametrize(
    "part",
    [
        lambda value: Policy(victim=VictimWeights(priority=value)),
        lambda value: Policy(idle_hold=IdleHold(on_demand_ns=value)),
        lambda value: Policy(guard=RollupGuard(retain_fraction=value)),
        lambda value: Policy(placement=Placement(risk_limit=value)),
        lambda value: Policy(reclaim_cap_fraction=value),
        lambda value: Policy(reclaim_hold_ns=value),
        lambda value: Policy(same_candidates=value),
        lambda value: Policy(max_actions_per_step=value),
        lambda value: Policy(shortfalls_reported=value),
    ],
)
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_a_policy_refuses_numbers_that_mean_nothing(part: Any, value: float) -> None:
    with pytest.raises(ValueError, match="policy"):
        part(value)
