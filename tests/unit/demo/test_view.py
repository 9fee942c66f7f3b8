"""The demonstration's screen, drawn from plain values; and the demand it shows."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from bigfleet.demo.narrate import NANOSECONDS, Line
from bigfleet.demo.scene import CLOUD_ZONES, demo_catalogue
from bigfleet.demo.view import FEED, KEYS, WIDTH, ClusterMoment, Moment, picture
from bigfleet.demo.watching import SeenMachine, SeenNeed, Sight
from bigfleet.demo.workloads import CRITICAL_PODS, SETTLEMENT, three_clusters
from bigfleet.engine.results import UnmetReason
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.model.resources import Resources
from bigfleet.shard.streams.rollup_codec import RollupDecoder
from bigfleet.wire import capacity_pb2


def machine(number: int, state: MachineState, cluster: str = "") -> SeenMachine:
    return SeenMachine(f"m-{number}", CapacityType.SPOT, "m6i.large", "zone-a", state, cluster, 0.25)


NEED = SeenNeed("web", "f", "", 100, 0.0, Resources.of(cpu=4000), True, Resources(), UnmetReason.NONE)
MOMENT = Moment(
    now=10 * NANOSECONDS,
    sight=Sight(
        7,
        1,
        (
            machine(1, MachineState.CONFIGURED, "web"),
            machine(2, MachineState.CONFIGURING, "web"),
            replace(machine(3, MachineState.SPECULATIVE), has_host=False),
        ),
        (NEED,),
    ),
    met=False,
    clusters=(ClusterMoment("web", True, (("storefront", 9), ("idle", 0))),),
    lines=(Line(8 * NANOSECONDS, "bought something"),),
    address="127.0.0.1:1",
)


def drawn(moment: Moment) -> str:
    console = Console(width=WIDTH, file=io.StringIO(), record=True)
    console.print(picture(moment))
    return console.export_text()


def test_the_screen_shows_demand_machines_by_state_money_and_decisions() -> None:
    text = drawn(MOMENT)
    assert "3 pretend machines, 1 clusters" in text
    assert "$0.50/h" in text and "working on it" in text
    row = next(line for line in text.splitlines() if "■ web" in line)
    assert "9 storefront pods" in row and " 4 " in row and "soon" in row
    assert "■◐·" in text
    assert "■ 1 node  ◐ 1 joining" in text and "· 1 for sale" in text
    assert "2 s bought something" in text
    assert all(words in text for _, _, words in KEYS)


def test_a_shortfall_and_a_zone_that_is_down_are_seen() -> None:
    short = replace(NEED, satisfied=False, missing=Resources.of(cpu=2000), reason=UnmetReason.PRIORITY_STARVED)
    text = drawn(replace(MOMENT, sight=replace(MOMENT.sight, needs=(short,)), down=("zone-a",)))
    assert "zone-a down" in text
    assert "web (batch) is short of 2 vCPU: others of equal or higher priority" in text
    assert "short" in next(line for line in text.splitlines() if "■ web" in line)


def test_met_needs_every_need_satisfied_and_every_machine_there() -> None:
    arriving = MOMENT.sight
    there = replace(arriving, machines=arriving.machines[:1])
    assert not arriving.met and there.met
    assert not replace(there, needs=(replace(NEED, satisfied=False),)).met
    assert not replace(there, machines=(replace(arriving.machines[2], picked=True),)).met
    assert not Sight().met


def test_only_the_last_decisions_are_shown() -> None:
    lines = tuple(Line(0, f"decision {n:03}") for n in range(FEED + 5))
    text = drawn(replace(MOMENT, lines=lines))
    assert f"decision {FEED - 1:03}" in text and f"decision {FEED:03}" not in text


def test_demand_rests_bursts_and_ends() -> None:
    payments, _web, research = three_clusters()
    at_rest = research.total
    assert research.resting and research.burst() > 0 and not research.resting
    research.rest()
    assert research.total == at_rest
    payments.more(SETTLEMENT, CRITICAL_PODS)
    assert not payments.resting and len(payments.needs()) == 2
    payments.nothing()
    assert payments.total == 0 and payments.resting and payments.needs() == []


def test_every_need_is_one_a_shard_accepts() -> None:
    for cluster in three_clusters():
        cluster.burst()
        rollup = capacity_pb2.ClusterCapacityNeeds(
            cluster_id=cluster.name, timestamp_unix_nanos=1, needs=cluster.needs()
        )
        decoded, _ = RollupDecoder().decode(rollup.SerializeToString())
        assert len(decoded) == len(cluster.needs())


def test_the_fleet_has_every_kind_of_capacity_in_several_zones() -> None:
    offerings = demo_catalogue().offerings
    assert {offering.capacity_type for offering in offerings} == set(CapacityType) - {CapacityType.UNSPECIFIED}
    assert {zone for offering in offerings for zone in offering.zones} == {"hall-a", "hall-b", *CLOUD_ZONES}
    assert 100 <= demo_catalogue(quick=True).size <= 200
