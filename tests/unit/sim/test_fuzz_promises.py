"""What random scenarios promise: rest at the end, except where failed preemptions may still be tried again."""

from __future__ import annotations

from bigfleet.engine.policy import drain_grace_seconds
from bigfleet.sim.scenario.expectations import Converged
from bigfleet.sim.soak.fuzz import random_scenario
from bigfleet.virtual.kernel import SECOND


def test_rest_is_promised_unless_pods_outlast_their_grace() -> None:
    promised = []
    for seed in range(200):
        scenario = random_scenario(seed)
        priorities = [shape.priority for shape in scenario.shapes.values()]
        grace = drain_grace_seconds(max(priorities) - min(priorities)) * SECOND
        stuck = not scenario.shard.drain_after_grace and any(
            each.drain_reports and each.eviction.high > grace for each in scenario.clusters
        )
        assert any(isinstance(each, Converged) for each in scenario.expect) is not stuck
        promised.append(not stuck)
    assert 140 < sum(promised) < 200, "most scenarios promise it, and some cannot"
