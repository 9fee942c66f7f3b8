"""The demonstration's screen, drawn from plain values; and the demand it shows."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from bigfleet.demo.feed import Feed
from bigfleet.demo.narrate import NANOSECONDS, Line
from bigfleet.demo.scene import CLOUD_ZONES, demo_catalogue
from bigfleet.demo.view import KEYS, PICTURE, ClusterMoment, Moment, keys, picture, screen
from bigfleet.demo.watching import SeenMachine, SeenNeed, Sight
from bigfleet.demo.workloads import CRITICAL_PODS, SETTLEMENT, four_clusters
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
    shards=(("main", "127.0.0.1:1"), ("edge", "127.0.0.1:2")),
)


SMALL, LARGE = (80, 24), (160, 50)


def drawn(moment: Moment) -> str:
    console = Console(width=PICTURE[0], file=io.StringIO(), record=True)
    console.print(picture(moment))
    return console.export_text()


def lines(moment: Moment, width: int, height: int) -> list[str]:
    """The screen without its keys, on paper wide enough to show what would stick out."""
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(screen(moment, width, height, Feed()))
    return console.export_text().splitlines()


def test_the_screen_shows_demand_machines_by_state_money_and_decisions() -> None:
    text = drawn(MOMENT)
    assert "3 pretend machines, 1 clusters" in text
    assert "$0.50/h" in text and "working on it" in text
    row = next(line for line in text.splitlines() if "■ web" in line)
    assert "9 storefront" in row and " 4 " in row and "soon" in row
    assert "■◐·" in text
    assert "■ 1 node  ◐ 1 joining" in text and "· 1 for sale" in text
    assert "2 s bought something" in text
    assert all(words in text for _, _, words, _ in KEYS)


def test_a_shortfall_and_a_zone_that_is_down_are_seen() -> None:
    short = replace(NEED, satisfied=False, missing=Resources.of(cpu=2000), reason=UnmetReason.AWAITING_DRAIN)
    text = drawn(replace(MOMENT, sight=replace(MOMENT.sight, needs=(short,)), down=("zone-a",)))
    assert "zone-a down" in text
    assert "web (batch) is short of 2 vCPU: machines are being drained for it" in text
    assert "short" in next(line for line in text.splitlines() if "■ web" in line)


def test_owned_and_reserved_machines_are_already_paid_and_others_say_what_they_cost() -> None:
    owned = replace(machine(4, MachineState.CONFIGURED, "web"), kind=CapacityType.BARE_METAL, price=0.0)
    reserved = replace(owned, id="m-5", kind=CapacityType.RESERVED)
    moment = replace(MOMENT, sight=replace(MOMENT.sight, machines=(*MOMENT.sight.machines, owned, reserved)))
    for size in (SMALL, LARGE):
        rows = {line.strip("│ ").split()[0]: line for line in lines(moment, *size) if "/" in line}
        assert "already paid" in rows["on-prem"] and "already paid" in rows["reserved"]
        assert "$0.50/h" in rows["spot"] and "already paid" not in rows["spot"]


def test_machines_of_a_zone_that_is_gone_are_shown_as_gone_and_cost_nothing() -> None:
    gone = tuple(machine(number, MachineState.CONFIGURED, "web") for number in range(10, 58))
    moment = replace(MOMENT, sight=Sight(9, 1), gone=gone, down=("zone-a",))
    text = drawn(moment)
    assert "✕" * 48 in text and "✕ 48 gone" in text and "0/48 nodes  $0.00/h" in text
    assert "48 pretend machines" in text


def test_the_way_out_is_shown_however_narrow_the_terminal() -> None:
    for width in range(24, 200):
        assert keys(width).cell_len <= width and keys(width).plain.endswith("quit")


def test_any_screen_fits_and_cuts_no_decision() -> None:
    """Long decisions, several shortfalls and a crowded fleet, on every size from small to large."""
    crowd = tuple(
        replace(machine(number, state, "web"), zone=zone, kind=kind)
        for number, (zone, kind, state) in enumerate(
            (zone, kind, state)
            for zone in CLOUD_ZONES
            for kind in CapacityType
            if kind is not CapacityType.UNSPECIFIED
            for state in (*MachineState, *MachineState)
        )
    )
    short = tuple(
        replace(
            NEED,
            fingerprint=f"f{n}",
            workload="settlement",
            satisfied=False,
            missing=Resources.parse({"cpu": "409500m", "memory": "1200Gi"}, round_up=True),
            reason=UnmetReason.PRIORITY_STARVED,
            in_use=140,
        )
        for n in range(3)
    )
    told = tuple(Line(0, f"decision {n:03} " + "because it was so " * 9 + f"end {n:03}") for n in range(60))
    wants = (("checkout", 120), ("settlement", 112))
    moment = replace(
        MOMENT,
        sight=Sight(7, 1, crowd, short),
        clusters=tuple(ClusterMoment(name, True, wants) for name in ("payments", "web", "research", "stores")),
        lines=told,
        down=("eu-west-1a",),
    )
    for width, height in [SMALL, (100, 30), (112, 34), (120, 40), LARGE, (200, 60)]:
        shown = lines(moment, width, height - 1)
        text = "\n".join(shown)
        assert len(shown) <= height - 1, f"{len(shown)} lines at {width}x{height}"
        assert "…" not in text
        begun, ended = (text.count(word) for word in ("decision 0", "end 0"))
        assert begun == ended > 0, f"{begun} decisions begin and {ended} end at {width}x{height}"
        assert keys(width).cell_len <= width and keys(width).plain.endswith(" quit")
        assert text.count(" TiB") == 3 or f"• and {3 - text.count(' TiB')} more" in text


def test_met_needs_every_need_satisfied_and_every_machine_there() -> None:
    arriving = MOMENT.sight
    there = replace(arriving, machines=arriving.machines[:1])
    assert not arriving.met and there.met
    assert not replace(there, needs=(replace(NEED, satisfied=False),)).met
    assert not replace(there, machines=(replace(arriving.machines[2], picked=True),)).met
    assert not Sight().met


def test_demand_rests_bursts_and_ends() -> None:
    payments, _web, research, _stores = four_clusters()
    at_rest = research.total
    assert research.resting and research.burst() > 0 and not research.resting
    research.rest()
    assert research.total == at_rest
    payments.more(SETTLEMENT, CRITICAL_PODS)
    assert not payments.resting and len(payments.needs()) == 2
    payments.nothing()
    assert payments.total == 0 and payments.resting and payments.needs() == []


def test_every_need_is_one_a_shard_accepts() -> None:
    for cluster in four_clusters():
        cluster.burst()
        rollup = capacity_pb2.ClusterCapacityNeeds(
            cluster_id=cluster.name, timestamp_unix_nanos=1, needs=cluster.needs()
        )
        decoded, _ = RollupDecoder().decode(rollup.SerializeToString())
        assert len(decoded) == len(cluster.needs())


def test_the_fleet_has_every_kind_of_capacity_in_several_zones() -> None:
    offerings = demo_catalogue().offerings
    assert {offering.capacity_type for offering in offerings} == set(CapacityType) - {CapacityType.UNSPECIFIED}
    assert {zone for offering in offerings for zone in offering.zones} == {"hall-a", "hall-b", "edge-1", *CLOUD_ZONES}
    assert 100 <= demo_catalogue(quick=True).size <= 200
