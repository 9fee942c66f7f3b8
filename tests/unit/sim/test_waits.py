"""`demand-met` and `no-shortfall` are about pods and about the whole run, whatever the engine's books say."""

from __future__ import annotations

import pytest

from bigfleet.sim.document.document import DocumentError
from bigfleet.sim.scenario.scenario import parse_scenario
from bigfleet.sim.world.simulation import Simulation

WORLD = """\
name: eights
description: Pods of five cores on machines of eight.
operator: reference
duration: 1h
shapes: {five: {resources: {cpu: 5, memory: 8Gi}, priority: 1000000}}
fleets: [{pace: quick, offers: [{name: eight, instance_type: m6i.2xlarge, slots: 60}]}]
clusters: [{name: only}]
workloads: [{kind: deployment, name: five, shape: five, replicas: 40}]
"""


def failures(clause: str, world: str = WORLD, **steps: str) -> list[str]:
    script = "steps: [" + ", ".join(steps.values()) + "]\n" if steps else ""
    return Simulation(parse_scenario(f"{world}{script}expect: [{clause}]\n", "test.yaml")).run().failures()


def test_pods_that_fit_nowhere_are_a_shortfall_though_the_books_are_even() -> None:
    run = Simulation(parse_scenario(WORLD, "test.yaml")).run()
    assert run.shortfalls() == 0, "the engine counts sums: 25 machines of 8 cores hold 40 times 5"
    [told] = failures("{check: no-shortfall}")
    assert told.startswith("no-shortfall: 15 pods of priority 1000000 or more waited longer than 15m, one of them 1h")
    assert failures("{check: no-shortfall, priority_at_least: 1000001}") == []
    [row] = run.waiting()
    assert (row.pods, row.why) == (15, "Of 25 nodes 25 have too little vCPU.")
    assert row.shard == "The shard takes this demand for met."


def test_demand_that_was_met_too_late_or_given_up_was_not_met() -> None:
    gone = "{at: 40m, do: scale, workload: five, replicas: 0}"
    [told] = failures("{check: demand-met}", scale=gone)
    assert told.startswith("demand-met: 15 pods waited longer than 15m, one of them 40m00s from 0s on")
    assert failures("{check: demand-met, judged: end}", scale=gone) == []
    assert failures("{check: demand-met, by: 41m}", scale=gone) == []
    assert failures("{check: demand-met, waits_at_most: 45m}", scale=gone) == []


def test_warming_up_does_not_count() -> None:
    gone = "{at: 40m, do: scale, workload: five, replicas: 0}"
    assert failures("{check: no-shortfall, after: 30m}", scale=gone) != [], "a quarter of what is left: 7.5 minutes"
    assert failures("{check: no-shortfall, after: 35m}", scale=gone) == []


def test_a_clause_judges_in_one_way_only() -> None:
    with pytest.raises(DocumentError, match="give by alone, or leave it out"):
        failures("{check: demand-met, by: 5m, judged: end}")
