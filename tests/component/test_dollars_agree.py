"""The same dollars for the same instant, whoever is asked: the books of a simulation, the gauge, the demonstration."""

from __future__ import annotations

from collections import Counter

import pytest

from bigfleet.demo.watching import Sight, seen_machine
from bigfleet.model.machine import MachineState
from bigfleet.shard.coordinator_link.report import standing_of
from bigfleet.shard.read.views import machine_view
from bigfleet.sim.scenario.scenario import parse_scenario
from bigfleet.sim.scenario.supply import OFFER_LABEL
from bigfleet.sim.world.simulation import Simulation
from bigfleet.virtual.kernel import SECOND

PRICES = {"owned": 0.0, "promised": 3.0, "rented": 1.0}
SCENARIO = """\
name: bills
description: Every way to pay, hosts that break, hosts that die, and a zone that is lost.
duration: 90m
shapes:
  whole: {resources: {cpu: 1500m, memory: 4Gi}}
fleets:
  - offers:
      - {name: owned, instance_type: m6i.large, capacity_type: bare-metal, idle: 2, price_per_hour: 0}
      - {name: promised, instance_type: m6i.large, capacity_type: reserved, slots: 4, zones: [zone-a, zone-b],
         price_per_hour: 3.0}
      - {name: rented, instance_type: m6i.large, slots: 12, zones: [zone-a, zone-b], price_per_hour: 1.0}
clusters: [{name: web}]
workloads:
  - {kind: deployment, name: site, shape: whole, replicas: 12, clusters: [web]}
steps:
  - {at: 20m, do: break, count: 2, cluster: web, offer: rented}
  - {at: 40m, do: lose-hosts, count: 1, cluster: web, offer: rented}
  - {at: 50m, do: zone-loss, zone: zone-a, for: 15m}
  - {at: 75m, do: withdraw}
"""


def figures(run: Simulation) -> tuple[float, float, float, float]:
    """What the provider bills by the simulator's books, the shard's gauge, a reader, and the coordinator's summary."""
    [site] = run.sites
    core = site.host.core
    assert core is not None
    run.meter.advance(run.kernel.now)
    books = sum(run.meter.sample(Counter(), Counter(), 0.0).rates.values())
    seen = Sight(1, 1, tuple(seen_machine(machine_view(each)) for each in core.read.machines()))
    reported = standing_of(core, run.kernel.now).summary.dollars_per_hour
    return books, core.read.publish().dollars_per_hour, seen.dollars, reported


def test_books_gauge_and_demonstration_agree_at_every_quiet_instant() -> None:
    run = Simulation(parse_scenario(SCENARIO, "bills"), check=True, sampled=False)
    [site] = run.sites
    found: dict[int, float] = {}
    failed_and_billed = 0
    for second in range(5, 90 * 60, 5):
        run.kernel.run_until(second * SECOND)
        records = site.ports["sim"].provider.core.machines
        core = site.host.core
        assert core is not None
        known = {each.id: (each.record.state, bool(each.record.host)) for each in core.read.machines()}
        if known != {record.id: (record.state, record.host is not None) for record in records.values()}:
            continue  # the shard has not heard of a change yet
        books, gauge, demonstration, reported = figures(run)
        assert books == pytest.approx(gauge) == pytest.approx(demonstration) == pytest.approx(reported), (
            f"at {second} s"
        )
        # By hand, from what the provider lists.
        byhand = sum(
            PRICES[record.labels[OFFER_LABEL]]
            for record in records.values()
            if record.host is not None or record.labels[OFFER_LABEL] == "promised"
        )
        assert gauge == pytest.approx(byhand)
        failed_and_billed += any(
            record.state == MachineState.FAILED and record.host is not None for record in records.values()
        )
        found[second] = gauge
    assert len(found) > 500 and failed_and_billed, "the run must have quiet instants, and broken hosts that are billed"
    assert len(set(found.values())) >= 5, sorted(set(found.values()))
