"""Steps that last: overlapping ones are over together, and what they changed stays changed where it should."""

import pytest

from bigfleet.sim.scenario.scenario import parse_scenario
from bigfleet.sim.world.simulation import Simulation
from bigfleet.virtual.kernel import MINUTE

SCENARIO = """\
name: small
description: Two zones and nobody who wants them.
duration: 60m
fleets:
  - offers:
      - {name: rented, instance_type: m6i.large, slots: 4, zones: [zone-a, zone-b], price_per_hour: 1.0}
clusters: [{name: web}]
steps:
"""


def played(*steps: str) -> Simulation:
    return Simulation(parse_scenario(SCENARIO + "".join(f"  - {{{step}}}\n" for step in steps), "small"), check=True)


def machines(run: Simulation, zone: str = "") -> list[float]:
    [site] = run.sites
    records = site.ports["sim"].provider.core.machines.values()
    return [record.shape.price_per_hour for record in records if zone in ("", record.zone)]


@pytest.mark.parametrize(
    ("step", "seen"),
    [
        ("do: provider-outage", lambda run: run.sites[0].ports["sim"].out),
        ("do: rate-limit, per_second: 1", lambda run: run.sites[0].ports["sim"]._bucket is not None),
        ("do: operator-disconnect", lambda run: run.sites[0].members["web"].cut),
        ("do: empty-roll-up", lambda run: run.sites[0].members["web"].says._nonsense is not None),
        ("do: stockout, offer: rented", lambda run: bool(run.sites[0].ports["sim"].provider.cloud.faults.rules)),
        ("do: zone-loss, zone: zone-a", lambda run: not machines(run, "zone-a")),
    ],
)
def test_what_overlaps_is_over_when_the_last_of_it_is(step: str, seen) -> None:  # type: ignore[no-untyped-def]
    run = played(f"at: 10m, {step}, for: 10m", f"at: 15m, {step}, for: 20m")
    found = []
    for minute in (9, 12, 22, 34, 36):
        run.kernel.run_until(minute * MINUTE)
        found.append(bool(seen(run)))
    assert found == [False, True, True, True, False]


def test_a_shard_that_dies_twice_is_back_once() -> None:
    run = played("at: 10m, do: shard-restart, down: 5m", "at: 12m, do: shard-restart, down: 10m")
    found = []
    for minute in (9, 11, 16, 23):
        run.kernel.run_until(minute * MINUTE)
        found.append(run.sites[0].host.up)
    assert found == [True, False, False, True]


def test_a_new_price_holds_for_slots_that_come_back_and_outlives_a_new_risk() -> None:
    run = played(
        "at: 5m, do: quota, offer: rented, withdraw: 2",
        "at: 10m, do: price, offer: rented, price_per_hour: 3.0",
        "at: 15m, do: quota, offer: rented, withdraw: 0",
        "at: 20m, do: price, offer: rented, interruption_probability: 0.5",
    )
    run.kernel.run_until(12 * MINUTE)
    assert machines(run) == [3.0, 3.0]
    run.kernel.run_until(25 * MINUTE)
    assert machines(run) == [3.0] * 4


def test_what_has_no_effect_is_told_once_and_with_its_reason() -> None:
    run = played("at: 5m, do: spot-wave", "at: 6m, do: fail-next, transition: create, machine: nobody").run()
    told = [line for line in run.trace.lines if "no-effect" in line]
    assert len(told) == 2
    assert "give spot machines that have a host" in told[0]
    assert "there is no machine 'nobody'" in told[1]


def test_zeros_and_switches_are_told() -> None:
    run = played("at: 5m, do: rails, paused: false", "at: 6m, do: failure-rate, transition: create, rate: 0").run()
    assert '"event":"rails","paused":false}' in run.trace.lines[-3]
    assert '"transition":"create","rate":0.0}' in run.trace.lines[-2]
