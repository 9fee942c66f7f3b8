"""What the mirror says about a cluster, case by case."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bigfleet.model.names import HOSTNAME_LABEL, ZONE_LABEL
from bigfleet.model.profile import Profile
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import Resources
from bigfleet.model.spread import Spread, WhenUnsatisfiable
from bigfleet.operator.core import frames
from bigfleet.operator.core.events import Connected, Cordon, Received, Say
from bigfleet.operator.core.mirror import facts as f
from bigfleet.operator.core.mirror.labels import Selector, equal_to
from bigfleet.operator.core.mirror.mirror import Mirror
from bigfleet.operator.core.mirror.waiting import PATIENCE
from bigfleet.operator.core.redial import doubling
from bigfleet.operator.core.rows import Row
from bigfleet.operator.core.session import Session, SessionSettings

SECOND = 1_000_000_000
MINUTE = 60 * SECOND


def shape(cpu: int = 1000, *, priority: int = 0, app: str = "a", **more: Any) -> f.PodShape:
    profile = more.pop("profile", None) or Profile((), more.pop("spread", ()), priority, 0, 0)
    return f.PodShape("default", Resources.of(cpu=cpu), profile, labels=(("app", app),), **more)


def node(name: str, cpu: int = 4000, *, ours: bool = True, zone: str = "z", **more: Any) -> f.NodeSeen:
    labels = ((HOSTNAME_LABEL, name), ("rack", more.pop("rack", "r")), (ZONE_LABEL, zone))
    return f.NodeSeen(name, Resources.of(cpu=cpu), labels, machine=f"m-{name}" if ours else "", **more)


def pods(count: int, of: f.PodShape, where: str = "", first: int = 0, **more: Any) -> list[f.Delta]:
    """Pods with a request each."""
    out: list[f.Delta] = []
    for number in range(first, first + count):
        uid = f"{dict(of.labels)['app']}-{where or 'waiting'}-{number:03}"
        out += [f.RequestSeen(f"cr-{uid}", of), f.PodSeen(uid, of, where, request=f"cr-{uid}", **more)]
    return out


def looked(*deltas: f.Delta | list[f.Delta], now: int = 0) -> Mirror:
    mirror = Mirror()
    for each in deltas:
        mirror.apply(each if isinstance(each, list) else [each])
    mirror.settle(now)
    mirror.validate()
    return mirror


def only_row(mirror: Mirror) -> Row:
    [row] = mirror.rows()
    return row


def counts(mirror: Mirror) -> tuple[int, int, int]:
    row = only_row(mirror)
    return row.count, row.running, row.stranded


def report(mirror: Mirror, machine: str) -> Any:
    return {each.machine: each for each in mirror.reports(anew=True)}[machine]


# ------------------------------------------------------------------------------------------------------------ stranded


def test_forty_pods_of_five_cores_on_machines_of_eight_need_a_machine_each() -> None:
    mirror = looked([node(f"n-{i:02}", 8000) for i in range(25)], pods(40, shape(5000)))
    assert counts(mirror) == (40, 0, 15), "a sum of 200 cores would fit 25 machines of 8"


def test_what_runs_what_has_room_and_what_has_none_are_told_apart() -> None:
    big = shape(3000)
    mirror = looked(node("n-1"), node("n-2"), pods(1, big, "n-1"), pods(2, big, first=5))
    assert counts(mirror) == (3, 1, 1)
    assert only_row(mirror).resources == Resources.of(cpu=9000)


def test_priority_decides_who_finds_the_last_room() -> None:
    low, high = shape(3000, priority=1, app="low"), shape(3000, priority=9, app="high")
    mirror = looked(node("n-1"), pods(1, low), pods(1, high))
    assert {row.profile.priority: row.stranded for row in mirror.rows()} == {1: 1, 9: 0}


def test_the_number_of_pods_a_node_takes_is_room_too() -> None:
    few = replace(node("n-1"), allocatable=Resources.of(cpu=4000, pods=1))
    assert counts(looked(few, pods(2, shape(100)))) == (2, 0, 1)


def test_foreign_nodes_give_room_but_are_not_reported() -> None:
    mirror = looked(node("theirs", ours=False), pods(1, shape()))
    assert counts(mirror) == (1, 0, 0)
    assert mirror.reports(anew=True) == []


@pytest.mark.parametrize(
    "closed",
    [{"ready": False}, {"cordoned": True}],
    ids=lambda closed: next(iter(closed)),
)
def test_nodes_that_take_no_pods_give_no_room(closed: dict[str, Any]) -> None:
    assert counts(looked(node("n-1", **closed), pods(1, shape()))) == (1, 0, 1)


def test_a_node_that_opens_gives_room_to_those_who_found_none() -> None:
    mirror = looked(node("n-1", cordoned=True), pods(1, shape()))
    assert mirror.settle(1).stranded == 1
    mirror.apply([node("n-1")])
    assert mirror.settle(2).stranded == 0
    mirror.apply([node("n-1", ready=False)])
    assert mirror.settle(3).stranded == 1


def test_a_pod_the_scheduler_makes_room_for_has_room() -> None:
    leaving = f.PodSeen("old", shape(4000, app="old"), "n-1", terminating=True)
    mirror = looked(node("n-1"), leaving, pods(1, shape(4000), nominated="n-1"))
    assert counts(mirror) == (1, 0, 0)


def test_a_terminating_pod_takes_room_until_it_is_gone() -> None:
    mirror = looked(node("n-1"), f.PodSeen("old", shape(4000, app="old"), "n-1", terminating=True), pods(1, shape()))
    assert counts(mirror) == (1, 0, 1)
    mirror.apply([f.PodGone("old")])
    mirror.settle(1)
    assert counts(mirror) == (1, 0, 0)


def test_room_that_the_scheduler_does_not_use_for_five_minutes_is_none() -> None:
    mirror = looked(node("n-1"), pods(1, shape()), now=0)
    assert mirror.next_timer() == 5 * MINUTE
    assert mirror.settle(5 * MINUTE - 1).stranded == 0
    found = mirror.settle(5 * MINUTE)
    assert (found.stranded, found.stuck, found.grew) == (1, ("a-waiting-000",), True)
    assert mirror.settle(6 * MINUTE).stuck == (), "an Event is written once"


def test_demand_grows_when_units_come_or_lose_their_room_and_not_otherwise() -> None:
    mirror = looked(node("n-1"), pods(1, shape(3000)))
    assert not mirror.settle(1).grew
    mirror.apply([node("n-1", cordoned=True)])
    assert mirror.settle(2).grew
    mirror.apply([node("n-1")])
    assert not mirror.settle(3).grew
    mirror.apply(pods(1, shape(3000), first=7))
    assert mirror.settle(4).grew


def test_rows_and_reports_are_never_read_past_a_change() -> None:
    mirror = looked(node("n-1"))
    mirror.apply(pods(1, shape()))
    with pytest.raises(RuntimeError, match="settle"):
        mirror.rows()


# ------------------------------------------------------------------------------------------- placeholders and requests


def test_a_request_without_a_pod_keeps_its_node_from_being_empty() -> None:
    mirror = looked(node("n-1"), f.RequestSeen("reserve", shape(3000), units=2))
    assert counts(mirror) == (2, 0, 1)
    assert not report(mirror, "m-n-1").empty


def test_a_pod_named_after_a_request_replaces_one_unit_of_it() -> None:
    mirror = looked(node("n-1", 8000), f.RequestSeen("reserve", shape(), units=3))
    mirror.apply([f.PodSeen("p", shape(), "n-1", request="reserve")])
    mirror.settle(1)
    assert counts(mirror) == (3, 1, 0)


def test_more_pods_than_a_request_has_units_are_not_counted_twice() -> None:
    extra: list[f.Delta] = [f.PodSeen(f"p-{i}", shape(), "n-1", request="one") for i in range(3)]
    assert counts(looked(node("n-1"), f.RequestSeen("one", shape()), extra)) == (1, 1, 0)


def test_a_pod_that_nobody_asks_for_takes_room_and_is_in_no_row() -> None:
    mirror = looked(node("n-1"), f.PodSeen("p", shape(3000, app="other")), pods(1, shape(2000)))
    assert counts(mirror) == (1, 0, 1)


# --------------------------------------------------------------------------------------------------------------- gangs


def gang(cpu: int = 3000, name: str = "g") -> f.PodShape:
    profile = Profile([Requirement("rack", Operator.SAME)], (), 0, 0, 0)
    return shape(cpu, profile=profile, group=name, app=name)


def test_a_gang_is_placed_whole_in_one_domain_or_not_at_all() -> None:
    nodes: list[f.Delta] = [node("n-1", rack="p"), node("n-2", rack="q"), node("n-3", rack="q")]
    assert counts(looked(nodes, pods(2, gang()))) == (2, 0, 0)
    assert counts(looked(nodes, pods(3, gang()))) == (3, 0, 3)


def test_the_rest_of_a_gang_goes_where_it_runs() -> None:
    nodes: list[f.Delta] = [node("n-1", rack="p"), node("n-2", rack="q"), node("n-3", rack="q")]
    mirror = looked(nodes, pods(1, gang(), "n-1"), pods(1, gang(), first=4))
    assert counts(mirror) == (2, 1, 1)
    assert only_row(mirror).domain_units == (("p", 1),)


# -------------------------------------------------------------------------------------------- spreads and exclusiveness


def test_a_strict_spread_tells_its_units_by_domain_foreign_nodes_included() -> None:
    spread = Spread(ZONE_LABEL, 1, WhenUnsatisfiable.DO_NOT_SCHEDULE)
    wide = shape(spread=[spread], spreads=(f.SpreadTerm(ZONE_LABEL, 1, Selector(equal_to({"app": "a"}))),))
    nodes: list[f.Delta] = [node("n-1", zone="z-1"), node("n-2", zone="z-2", ours=False), node("n-3", zone="z-3")]
    mirror = looked(nodes, pods(2, wide, "n-1"), pods(1, wide, "n-2"), pods(1, wide, first=9))
    # A domain without such a pod is told as well: a shard that does not know of it would buy in another one.
    assert only_row(mirror).domain_units == (("z-1", 2), ("z-2", 1), ("z-3", 0))
    assert counts(mirror) == (4, 3, 0)


def spread_of(app: str) -> f.PodShape:
    spread = Spread(ZONE_LABEL, 1, WhenUnsatisfiable.DO_NOT_SCHEDULE)
    selector = Selector(equal_to({"app": app}))
    return shape(app=app, spread=[spread], spreads=(f.SpreadTerm(ZONE_LABEL, 1, selector),))


def test_each_strict_spread_is_a_row_that_tells_its_own_domains() -> None:
    """Added up, two Deployments that lean to different zones look even, and a machine in either zone seems to help."""
    nodes: list[f.Delta] = [node("n-1", 1000, zone="z-1"), node("n-2", 1000, zone="z-2")]
    left, right = spread_of("left"), spread_of("right")
    mirror = looked(nodes, pods(1, left, "n-1"), pods(1, left, first=5), pods(1, right, "n-2", first=7))
    told = {row.count: (row.stranded, row.domain_units) for row in mirror.rows()}
    assert told == {2: (1, (("z-1", 1), ("z-2", 0))), 1: (0, (("z-1", 0), ("z-2", 1)))}
    assert len({row.unit.canonical for row in mirror.rows()}) == 2


def test_more_strict_spreads_than_sizes_may_be_are_told_as_one() -> None:
    mirror = looked([delta for number in range(100) for delta in pods(1, spread_of(f"s-{number}"), first=10 * number)])
    rows = mirror.rows()
    assert len(rows) == 65
    assert sorted(row.count for row in rows)[-2:] == [1, 36]


def test_pods_that_are_leaving_do_not_count_in_a_spread() -> None:
    wide = shape(spreads=(f.SpreadTerm(ZONE_LABEL, 1, Selector(equal_to({"app": "a"}))),))
    full = node("n-2", 500, zone="z-2")
    mirror = looked(node("n-1", zone="z-1"), full, pods(1, wide, "n-1", terminating=True), pods(1, wide, first=3))
    assert counts(mirror) == (2, 1, 0)
    mirror = looked(node("n-1", zone="z-1"), full, pods(1, wide, "n-1"), pods(1, wide, first=3))
    assert counts(mirror) == (2, 1, 1)


def test_units_that_may_not_share_a_machine_share_a_token() -> None:
    port = shape(app="p", ports=(f.HostPort("TCP", 80),))
    apart = shape(2000, app="x", anti_affinity=(f.PodTerm(HOSTNAME_LABEL, Selector(equal_to({"app": "x"}))),))
    mirror = looked(node("n-1"), pods(1, port, "n-1"), pods(2, apart))
    tokens = {row.unit.canonical: row.exclusive for row in mirror.rows()}
    assert tokens["cpu=1000"] == ("port TCP 80 0.0.0.0",)
    assert len(tokens["cpu=2000"]) == 1
    assert report(mirror, "m-n-1").exclusive == tokens["cpu=1000"]
    assert {row.unit.canonical: row.stranded for row in mirror.rows()} == {"cpu=1000": 0, "cpu=2000": 1}


@pytest.mark.parametrize(("size", "count"), [(1000, 9), (500, 21)])
def test_who_wants_a_node_each_has_room_beside_larger_ones_that_wait_too(size: int, count: int) -> None:
    """All of it fits; but filled one after the other with the larger ones, two of three nodes have nothing left."""
    nodes: list[f.Delta] = [node(f"n-{number}", 4100) for number in range(3)]
    apart = shape(250, app="x", anti_affinity=(f.PodTerm(HOSTNAME_LABEL, Selector(equal_to({"app": "x"}))),))
    mirror = looked(nodes, pods(count, shape(size)), pods(3, apart))
    assert [row.stranded for row in mirror.rows()] == [0, 0]


def test_devices_and_priority_find_room_before_those_who_want_a_node_each() -> None:
    apart = shape(app="x", anti_affinity=(f.PodTerm(HOSTNAME_LABEL, Selector(equal_to({"app": "x"}))),))
    urgent = shape(4000, priority=9, app="urgent")
    mirror = looked(node("n-1"), pods(1, apart), pods(1, urgent))
    assert {row.profile.priority: row.stranded for row in mirror.rows()} == {0: 1, 9: 0}
    gpu = replace(shape(app="gpu"), requests=Resources.of(cpu=4000, **{"nvidia.com/gpu": 1}))
    with_gpu = replace(node("n-1"), allocatable=Resources.of(cpu=4000, **{"nvidia.com/gpu": 1}))
    mirror = looked(with_gpu, pods(1, apart), pods(1, gpu))
    assert {row.unit.get("nvidia.com/gpu"): row.stranded for row in mirror.rows()} == {0: 1, 1: 0}


def test_units_of_one_size_that_may_and_may_not_share_a_machine_are_rows_a_shard_does_not_add_up() -> None:
    port, other = (shape(app=f"p-{number}", ports=(f.HostPort("TCP", number),)) for number in (80, 81))
    rows = looked(pods(3, port), pods(2, other), pods(1, shape(app="b"))).rows()
    assert sorted((row.exclusive, row.count) for row in rows) == [
        ((), 1),
        (("port TCP 80 0.0.0.0",), 3),
        (("port TCP 81 0.0.0.0",), 2),
    ]
    assert len({row.unit.canonical for row in rows}) == 3
    # A KiB more is all the difference, and those who share have none of it.
    assert {row.exclusive: row.unit.get("memory") for row in rows}[()] == 0
    assert max(row.unit.get("memory") for row in rows) == 2


# ---------------------------------------------------------------------------------------------------------------- rows


def test_a_profile_in_too_many_sizes_is_told_on_a_grid_until_there_are_few_for_half_an_hour() -> None:
    sizes = [shape(1000 + 7 * number, app=f"s-{number}") for number in range(100)]
    mirror = looked([delta for each in sizes for delta in pods(1, each)])
    rows = mirror.rows()
    assert len(rows) < 32
    assert sum(row.count for row in rows) == 100
    exact = sorted(each.requests.get("cpu") for each in sizes)
    told = sorted(row.unit.get("cpu") for row in rows for _ in range(row.count))
    assert all(e <= t <= 1.09 * e for e, t in zip(exact, told, strict=True))
    assert max(told) == max(exact), "never past the largest unit"
    gone = [f.RequestGone(f"cr-s-{number}-waiting-000") for number in range(20, 100)]
    mirror.apply(gone)
    mirror.settle(1)
    assert len(mirror.rows()) < 20
    mirror.settle(30 * MINUTE)
    assert len(mirror.rows()) < 20
    mirror.settle(30 * MINUTE + 1)
    assert len(mirror.rows()) == 20
    mirror.validate()


def test_a_crowded_profile_is_never_told_in_amounts_that_nobody_asks_for() -> None:
    """Sixteen cores rounded up to the next step of a grid fit no machine of sixteen."""
    sizes = [shape(16_000 + 1600 * number, app=f"s-{number}") for number in range(100)]
    rows = looked([delta for each in sizes for delta in pods(1, each)]).rows()
    asked = {each.requests.get("cpu") for each in sizes}
    assert len(rows) < 100 and {row.unit.get("cpu") for row in rows} <= asked
    assert min(row.unit.get("cpu") for row in rows) == 16_000


# --------------------------------------------------------------------------------------------------------- nodes away


def test_pods_on_a_lost_node_wait_at_once() -> None:
    mirror = looked(node("n-1"), node("n-2", 2000), pods(1, shape(3000), "n-1"))
    mirror.lost("m-n-1")
    assert mirror.settle(1).stranded == 1
    assert counts(mirror) == (1, 0, 1)
    assert not report(mirror, "m-n-1").empty


def test_pods_on_a_node_that_is_not_ready_wait_after_its_grace() -> None:
    mirror = looked(node("n-1", ready=False), node("n-2"), node("n-3"), pods(1, shape(), "n-1"))
    assert counts(mirror) == (1, 1, 0)
    assert mirror.next_timer() == 5 * MINUTE
    mirror.settle(5 * MINUTE)
    assert counts(mirror) == (1, 0, 0)
    mirror.apply([node("n-1")])
    mirror.settle(6 * MINUTE)
    assert counts(mirror) == (1, 1, 0)


def test_when_many_nodes_stop_being_ready_together_it_is_the_network() -> None:
    down: list[f.Delta] = [node(f"n-{i}", ready=False) for i in range(3)]
    up: list[f.Delta] = [node(f"u-{i}") for i in range(9)]
    mirror = looked(down, up, pods(1, shape(), "n-0"))
    mirror.settle(20 * MINUTE)
    assert counts(mirror) == (1, 1, 0)
    mirror.lost("m-n-2")
    mirror.settle(21 * MINUTE)
    assert counts(mirror) == (1, 0, 0), "the provider lost one: it is not the network alone"


def test_two_of_many_nodes_are_not_the_network() -> None:
    down: list[f.Delta] = [node(f"n-{i}", ready=False) for i in range(2)]
    mirror = looked(down, [node(f"u-{i}") for i in range(3)], pods(1, shape(), "n-0"))
    mirror.settle(6 * MINUTE)
    assert counts(mirror) == (1, 0, 0)


def test_a_bare_pod_on_a_drained_node_asks_for_no_other() -> None:
    mirror = looked(node("n-1"), pods(1, shape(origin=f.Origin.BARE), "n-1"))
    mirror.begin("m-n-1")
    assert mirror.settle(1).stranded == 0


# -------------------------------------------------------------------------------------------------- closing


def test_a_closing_node_gives_no_room_unless_something_fits_only_there() -> None:
    closing = node("n-1", closing_since=7)
    mirror = looked(closing, node("n-2", 1000), pods(1, shape()))
    assert mirror.settle(1).reopen == ()
    mirror.apply(pods(1, shape(3000, app="b")))
    found = mirror.settle(2)
    assert (found.reopen, found.stranded) == (("m-n-1",), 0)


def patient(*deltas: f.Delta | list[f.Delta]) -> Mirror:
    mirror = Mirror(patience=PATIENCE)
    for each in deltas:
        mirror.apply(each if isinstance(each, list) else [each])
    return mirror


def test_a_pod_that_fits_only_on_a_closing_node_is_the_shards_to_serve_for_three_minutes() -> None:
    mirror = patient(node("n-1", closing_since=7), pods(1, shape(), since=SECOND))
    found = mirror.settle(SECOND)
    assert (found.reopen, found.stranded) == ((), 1)
    assert mirror.next_timer() == SECOND + PATIENCE
    assert mirror.settle(PATIENCE).stranded == 1
    found = mirror.settle(SECOND + PATIENCE)
    assert (found.reopen, found.stranded) == (("m-n-1",), 0)


def test_a_pod_that_no_request_counts_opens_a_closing_node_at_once() -> None:
    mirror = patient(node("n-1", closing_since=7), f.PodSeen("alone", shape(), since=SECOND))
    assert mirror.settle(SECOND).reopen == ("m-n-1",)


def test_a_node_that_has_become_empty_takes_nobody_and_one_that_has_just_come_does() -> None:
    stands = pods(1, shape(), "n-1")
    mirror = patient(node("n-1"), node("n-2"), stands)
    assert mirror.settle(0).close == ()
    mirror.apply([f.PodGone("a-n-1-000"), f.RequestGone("cr-a-n-1-000")])
    found = mirror.settle(1)
    assert (found.close, found.reopen) == (("m-n-1",), ())
    assert mirror.settle(2).close == (), "said once"


def test_a_node_that_somebody_is_about_to_take_stays_open() -> None:
    mirror = patient(node("n-1"), pods(1, shape(), "n-1"))
    mirror.settle(0)
    mirror.apply([f.PodGone("a-n-1-000"), f.RequestGone("cr-a-n-1-000"), *pods(1, shape(app="b"))])
    assert mirror.settle(1).close == ()
    mirror.apply([f.PodGone("b-waiting-000"), f.RequestGone("cr-b-waiting-000")])
    assert mirror.settle(2).close == ("m-n-1",)


def test_a_pod_bound_before_the_scheduler_knew_opens_the_node_again() -> None:
    mirror = patient(node("n-1"), pods(1, shape(), "n-1"))
    mirror.settle(0)
    mirror.apply([f.PodGone("a-n-1-000"), f.RequestGone("cr-a-n-1-000")])
    assert mirror.settle(1).close == ("m-n-1",)
    mirror.apply([node("n-1", closing_since=1), *pods(1, shape(app="b"), "n-1")])
    assert mirror.settle(2).reopen == ("m-n-1",)
    mirror.apply([node("n-1", closing_since=1)])
    assert mirror.settle(3).reopen == ()


# ------------------------------------------------------------------------------------------------------------- reports


def test_pods_that_need_no_device_are_not_sent_beside_devices() -> None:
    """A dear node would be kept for them; but where they stand beside devices already, others of the kind will do."""
    gpus = Resources.parse({"cpu": "64", "nvidia.com/gpu": "8"}, round_up=False)
    dear = replace(node("gpu"), allocatable=gpus)
    mirror = looked(node("n-1", cpu=2000), dear, pods(1, shape(), "n-1"))
    assert not report(mirror, "m-n-1").removable
    mirror = looked(replace(dear, name="gpu-2", machine="m-gpu-2"), dear, pods(1, shape(), "gpu"))
    assert report(mirror, "m-gpu").removable


def test_a_node_is_removable_when_its_pods_have_room_elsewhere_together() -> None:
    mirror = looked(node("n-1"), node("n-2"), pods(2, shape(), "n-1"), pods(2, shape(), "n-2", first=5))
    assert report(mirror, "m-n-1").removable and report(mirror, "m-n-2").removable
    mirror.apply(pods(1, shape(), "n-2", first=9))
    mirror.settle(1)
    assert not report(mirror, "m-n-1").removable
    assert not report(mirror, "m-n-2").removable


@pytest.mark.parametrize(
    "stays",
    [shape(pinned=True), shape(origin=f.Origin.BARE), shape(profile=Profile((), (), 0, 27, 0))],
    ids=["pinned", "bare", "interruption is priced as impossible"],
)
def test_what_must_not_be_moved_pins_its_node(stays: f.PodShape) -> None:
    mirror = looked(node("n-1"), node("n-2"), pods(1, stays, "n-1"))
    assert report(mirror, "m-n-1").pinned and not report(mirror, "m-n-1").removable
    assert "must not be moved" in mirror.refusal("m-n-1")


def test_a_budget_without_room_pins_its_pods_until_it_has_some() -> None:
    budget = f.BudgetSeen("b", "default", Selector(equal_to({"app": "a"})), allowed=0)
    mirror = looked(node("n-1"), node("n-2"), pods(1, shape(), "n-1"), budget)
    assert report(mirror, "m-n-1").pinned
    mirror.apply([replace(budget, allowed=1)])
    mirror.settle(1)
    assert not report(mirror, "m-n-1").pinned and report(mirror, "m-n-1").removable
    mirror.validate()


def test_a_daemon_is_overhead_and_no_occupant() -> None:
    daemon = f.PodSeen("d", shape(500, origin=f.Origin.DAEMON, app="d"), "n-1")
    told = report(looked(node("n-1"), daemon), "m-n-1")
    assert told.empty and told.allocatable == (("cpu", 3500),) and told.used == ()


def test_a_report_sums_what_taking_the_node_would_cost() -> None:
    dear = shape(profile=Profile((), (), 7, 4, 3), app="dear")
    told = report(looked(node("n-1"), pods(2, dear, "n-1"), pods(1, shape(), "n-1", first=9)), "m-n-1")
    assert (told.max_pod_priority, told.used) == (7, (("cpu", 3000), ("pods", 3)))
    assert told.reclamation_dollars == pytest.approx(2 * 1 + 0.005)
    assert told.interruption_dollars == pytest.approx(2 * 2)
    assert len(told.profiles) == 2


def test_a_node_is_as_urgent_as_whoever_is_about_to_stand_there() -> None:
    urgent = shape(4000, profile=Profile((), (), 7, 0, 0), app="urgent")
    mirror = looked(node("n-1"), pods(1, urgent))
    assert (report(mirror, "m-n-1").max_pod_priority, report(mirror, "m-n-1").empty) == (7, False)
    mirror.apply([f.PodGone(each.uid) for each in pods(1, urgent) if isinstance(each, f.PodSeen)])
    mirror.apply([f.RequestGone(each.name) for each in pods(1, urgent) if isinstance(each, f.RequestSeen)])
    mirror.settle(1)
    [told] = mirror.reports()
    assert (told.max_pod_priority, told.empty) == (0, True)


def test_more_than_sixteen_profiles_are_not_named() -> None:
    many = [shape(100, priority=number, app=f"a-{number}") for number in range(17)]
    told = report(looked(node("n-1"), [delta for each in many for delta in pods(1, each, "n-1")]), "m-n-1")
    assert told.profiles == () and not told.empty


def test_reports_of_what_only_moves_with_every_pod_wait_half_a_minute() -> None:
    mirror = looked(node("n-1"), node("n-2"), pods(1, shape(), "n-1"))
    mirror.reports(anew=True)
    mirror.apply(pods(1, shape(), "n-1", first=1))
    mirror.settle(10 * SECOND)
    assert mirror.reports() == []
    assert mirror.next_timer() == 30 * SECOND
    mirror.settle(30 * SECOND)
    assert [each.used for each in mirror.reports()] == [(("cpu", 2000), ("pods", 2))]


def test_a_node_that_becomes_empty_is_told_at_once_with_the_version_of_the_look() -> None:
    mirror = looked(node("n-1"), pods(1, shape(), "n-1"))
    mirror.reports(anew=True)
    mirror.apply([f.PodGone("a-n-1-000"), f.RequestGone("cr-a-n-1-000")])
    found = mirror.settle(1)
    [told] = mirror.reports()
    assert told.empty and told.version == found.version == mirror.version


# ------------------------------------------------------------------------------------------------------------- refusal


def test_a_drain_that_would_strand_somebody_is_refused() -> None:
    mirror = looked(node("n-1"), node("n-2"), pods(1, shape(3000), "n-1"))
    assert mirror.refusal("m-n-1") == ""
    mirror.apply(pods(1, shape(2000, app="b"), "n-2"))
    mirror.settle(1)
    assert "no room" in mirror.refusal("m-n-1")
    mirror.validate()


def test_a_node_that_was_to_go_because_it_was_empty_stays_with_a_pod_that_came_meanwhile() -> None:
    mirror = looked(node("n-1"), node("n-2"))
    settings = SessionSettings("c", frozenset(("drain-reports", "placement")), complete=True)
    session = Session(settings, doubling(lambda: 0.0), placement=mirror)
    session.handle(Connected(1), 0)

    def drains(instruction: str, *, empty: bool) -> bool:
        order = frames.ReclaimInstruction(instruction, ("m-n-1",), 600, voluntary=True, empty=empty)
        begins = Cordon("m-n-1", True) in session.handle(Received(order), 1)
        session.handle(Received(frames.ReclaimCancel(instruction)), 1)
        mirror.settle(1)
        return begins

    assert drains("i-1", empty=True)
    mirror.apply(pods(1, shape(), "n-1"))
    mirror.settle(1)
    assert not drains("i-2", empty=True)
    assert drains("i-3", empty=False), "a move asks its pods to leave"


def test_drains_are_judged_together() -> None:
    nodes: list[f.Delta] = [node("n-1"), node("n-2"), node("n-3")]
    mirror = looked(nodes, pods(1, shape(3000), "n-1"), pods(1, shape(3000, app="b"), "n-2"))
    assert mirror.refusal("m-n-1") == mirror.refusal("m-n-2") == ""
    mirror.begin("m-n-1")
    assert mirror.refusal("m-n-2") != "", "the room on n-3 is set aside"
    mirror.release("m-n-1")
    assert mirror.refusal("m-n-2") == ""


def test_a_node_that_is_drained_has_room_for_its_pods_when_a_look_found_it_for_all() -> None:
    mirror = looked(node("n-1"), node("n-2"), pods(2, shape(2000), "n-1"), pods(1, shape(3000, app="b"), "n-2"))
    mirror.begin("m-n-1")
    assert not mirror.has_room("m-n-1"), "nobody has looked"
    assert mirror.settle(1).stranded == 2
    assert not mirror.has_room("m-n-1") and mirror.has_room("m-n-2")
    mirror.apply([node("n-3", 2000)])
    assert mirror.settle(2).stranded == 1
    assert not mirror.has_room("m-n-1"), "one of two is not enough"
    mirror.apply([node("n-4", 2000)])
    assert mirror.settle(3).stranded == 0
    assert mirror.has_room("m-n-1") and mirror.has_room("m-nobody-knows")
    mirror.apply(pods(1, shape(4000, app="c")))
    assert mirror.settle(4).stranded == 1
    assert mirror.has_room("m-n-1"), "others lack room, its own do not"


def test_the_session_refuses_what_the_mirror_has_no_room_for() -> None:
    mirror = looked(node("n-1"), pods(1, shape(), "n-1"))
    settings = SessionSettings("c", frozenset(("drain-reports", "placement")), complete=True)
    session = Session(settings, doubling(lambda: 0.0), placement=mirror)
    session.handle(Connected(1), 0)
    order = frames.ReclaimInstruction("i", ("m-n-1",), 30, voluntary=True)
    out = session.handle(Received(order), 1)
    assert Cordon("m-n-1", True) not in out
    [_, refused] = out
    assert isinstance(refused, Say) and isinstance(refused.frame, frames.DrainReport)
    assert refused.frame.outcome is frames.DrainOutcome.REFUSED
    session.handle(Received(replace(order, voluntary=False)), 2)
    assert mirror.settle(3).stranded == 1, "preemption is not refused, and its pods need another node"


# ------------------------------------------------------------------------------------------- nodes kept for somebody


FOR_GANG = "gang g"


def gpu_node(name: str, cpu: int = 4000, **more: Any) -> f.NodeSeen:
    return replace(node(name, cpu, **more), allocatable=Resources.of(cpu=cpu) + Resources({"nvidia.com/gpu": 4}))


def gpu_job(cpu: int = 1000, gpus: int = 1) -> f.PodShape:
    return replace(shape(cpu, app=f"job-{cpu}-{gpus}"), requests=Resources({"cpu": cpu, "nvidia.com/gpu": gpus}))


def alone(cpu: int = 500) -> f.PodShape:
    return shape(cpu, app="alone", ports=(f.HostPort("TCP", 80),))


def bound(uid: str, of: f.PodShape, where: str) -> f.PodSeen:
    """A pod that waited stands there."""
    return f.PodSeen(uid, of, where, request=f"cr-{uid}")


def come(mirror: Mirror, came: f.NodeSeen, group: str = "") -> None:
    """A node registers, as the shell sees it."""
    mirror.apply([replace(came, kept_for=mirror.keep_for(group))])


def test_nodes_that_came_for_a_gang_are_kept_from_others_and_reserved_for_it_when_all_of_it_has_room() -> None:
    mirror = looked(pods(2, gang(4000)), pods(1, shape(), first=10), node("a", kept_for=FOR_GANG))
    assert {row.group: row.stranded for row in mirror.rows()} == {"g": 2, "": 1}
    [report] = mirror.reports()
    assert not report.ready, "until it is let go it is still on its way"
    assert mirror.settle(SECOND).reserved == ()
    mirror.apply([node("b", kept_for=FOR_GANG)])
    found = mirror.settle(2 * SECOND)
    assert found.let_go == ()
    assert dict(found.reserved).keys() == {"m-a", "m-b"}
    members = {uid for _, uids in found.reserved for uid in uids}
    assert len(members) == 2
    mirror.apply([bound(uid, gang(4000), where) for uid, where in zip(sorted(members), "ab", strict=True)])
    assert mirror.settle(3 * SECOND).let_go == ("m-a", "m-b"), "whom they were for stands there"
    mirror.apply([node("a", 5000), node("b", 5000)])
    mirror.settle(4 * SECOND)
    assert {row.group: row.stranded for row in mirror.rows()} == {"g": 0, "": 0}
    assert all(report.ready for report in mirror.reports())


def test_a_gang_that_does_not_come_has_its_nodes_for_half_a_minute() -> None:
    """A scheduler that has other plans, or somebody who refuses us the toleration."""
    mirror = looked(pods(1, gang(4000)), node("a", kept_for=FOR_GANG), now=SECOND)
    assert mirror.settle(30 * SECOND).let_go == ()
    assert mirror.next_timer() == 31 * SECOND
    assert mirror.settle(31 * SECOND).let_go == ("m-a",)


def test_nodes_of_a_gang_that_waits_for_nothing_are_let_go() -> None:
    mirror = looked(node("a", kept_for=FOR_GANG))
    assert mirror.settle(SECOND).let_go == ("m-a",)


def test_a_node_on_which_its_gang_stands_is_not_kept_for_another_gang() -> None:
    mirror = looked(pods(1, gang(3000), "a"), pods(2, gang(4000, "late"), first=5), node("a", kept_for=FOR_GANG))
    assert mirror.settle(SECOND).let_go == ("m-a",)


def test_a_node_is_kept_for_a_gang_that_gathers_for_eight_minutes_at_most() -> None:
    mirror = looked(pods(2, gang(4000)), node("a", kept_for=FOR_GANG))
    assert mirror.settle(479 * SECOND).let_go == ()
    assert mirror.next_timer() == 480 * SECOND
    assert mirror.settle(480 * SECOND).let_go == ("m-a",)


def test_pods_with_devices_get_the_node_that_came_for_them_although_others_wait_longer() -> None:
    mirror = looked(pods(3, shape(2000)), pods(2, gpu_job(2000), first=10))
    come(mirror, gpu_node("gpu"))
    found = mirror.settle(SECOND)
    assert found.let_go == ()
    [(machine, uids)] = found.reserved
    assert (machine, len(uids)) == ("m-gpu", 2)
    assert sorted(row.stranded for row in mirror.rows()) == [2, 3], "for the shard its room is still to come"
    mirror.apply([bound(uid, gpu_job(2000), "gpu") for uid in uids])
    assert mirror.settle(2 * SECOND).let_go == ("m-gpu",)


def test_the_job_of_four_devices_gets_the_node_and_smaller_ones_wait_for_theirs() -> None:
    mirror = looked(pods(2, gpu_job(100, 1)), pods(1, gpu_job(100, 4), first=10))
    mirror.told("m-small", replace(gpu_node("small"), ready=False))
    come(mirror, gpu_node("large"))
    [(machine, uids)] = mirror.settle(SECOND).reserved
    assert machine == "m-large"
    assert uids == ("job-100-4-waiting-010",)


def test_pods_that_want_a_node_each_get_one_and_others_what_is_left() -> None:
    mirror = looked(pods(8, shape(1000)), pods(2, alone(), first=20))
    come(mirror, node("a", 2500))
    come(mirror, node("b", 2500))
    reserved = dict(mirror.settle(SECOND).reserved)
    assert {machine: len(uids) for machine, uids in reserved.items()} == {"m-a": 3, "m-b": 3}
    assert len({uid for uids in reserved.values() for uid in uids}) == 6, "no pod is counted on twice"


def test_nobody_is_given_anything_where_nobody_could_take_the_room() -> None:
    mirror = looked(pods(2, gpu_job()))
    come(mirror, gpu_node("gpu"))
    found = mirror.settle(SECOND)
    assert (found.reserved, found.let_go) == ((), ("m-gpu",))


def test_a_node_opens_half_a_minute_after_it_is_ready_if_nobody_comes() -> None:
    mirror = looked(pods(3, shape(2000)), pods(2, gpu_job(2000), first=10))
    come(mirror, replace(gpu_node("gpu"), ready=False))
    found = mirror.settle(SECOND)
    assert found.reserved and not found.let_go, "pods may be told before it is ready"
    assert mirror.settle(100 * SECOND).let_go == ()
    mirror.apply([gpu_node("gpu", kept_for="reserved")])
    assert mirror.settle(101 * SECOND).let_go == ()
    assert mirror.next_timer() == 131 * SECOND
    assert mirror.settle(131 * SECOND).let_go == ("m-gpu",)


def test_only_gangs_devices_and_pods_that_want_a_node_each_keep_nodes() -> None:
    assert looked(pods(1, shape())).keep_for("") == ""
    assert looked(pods(1, shape())).keep_for("g") == FOR_GANG
    assert looked(pods(1, gpu_job())).keep_for("") == "reserved"
    assert looked(pods(1, alone())).keep_for("") == "reserved"
    assert looked(pods(1, alone()), node("a")).keep_for("") == "", "it has room"


def test_where_pods_are_left_alone_only_nodes_of_gangs_are_kept_until_all_of_it_has_room() -> None:
    mirror = Mirror(reserves=False)
    mirror.apply([*pods(2, gang(4000)), *pods(1, alone(), first=10), node("a", kept_for=FOR_GANG)])
    assert mirror.settle(0).let_go == ()
    assert mirror.keep_for("") == ""
    mirror.apply([node("b", kept_for=FOR_GANG)])
    found = mirror.settle(SECOND)
    assert (found.let_go, found.reserved) == (("m-a", "m-b"), ())


def test_nodes_of_a_gang_that_went_elsewhere_are_reserved_for_another_that_lacks_room() -> None:
    """Else they open one by one, and whoever is first takes them from a gang whose own nodes were taken."""
    mirror = looked(pods(2, gang(4000, "late")), node("a", kept_for=FOR_GANG))
    assert mirror.settle(SECOND).let_go == ()
    mirror.apply([node("b", kept_for=FOR_GANG)])
    assert dict(mirror.settle(2 * SECOND).reserved).keys() == {"m-a", "m-b"}


def test_nodes_reserved_before_pods_were_forbidden_to_us_are_opened_and_no_more_are_kept() -> None:
    mirror = looked(pods(3, shape(2000)), pods(2, gpu_job(2000), first=10))
    come(mirror, gpu_node("gpu"))
    assert mirror.settle(SECOND).reserved
    mirror.reserve(False)
    found = mirror.settle(2 * SECOND)
    assert (found.let_go, found.reserved, mirror.keep_for("")) == (("m-gpu",), (), "")
    mirror.reserve(True)
    mirror.settle(3 * SECOND)
    assert mirror.keep_for("") == "reserved"


@pytest.mark.parametrize("reserves", [True, False])
def test_an_operator_that_starts_again_opens_what_its_earlier_life_reserved(reserves: bool) -> None:
    """In time, or at once when it was told meanwhile to leave pods alone."""
    mirror = Mirror(reserves=reserves)
    mirror.apply([*pods(3, shape(2000)), *pods(2, gpu_job(2000), first=10), gpu_node("gpu", kept_for="reserved")])
    found = mirror.settle(5 * SECOND)
    assert bool(found.reserved) is reserves, "where it leaves pods alone it names none"
    assert found.let_go == (() if reserves else ("m-gpu",))
    if reserves:
        assert mirror.next_timer() == 35 * SECOND
        assert mirror.settle(35 * SECOND).let_go == ("m-gpu",)


def test_a_node_that_does_not_show_its_devices_yet_is_kept_until_it_does() -> None:
    """A kubelet registers and becomes ready before the plug-in of its devices speaks."""
    mirror = looked(pods(3, shape(2000)), pods(2, gpu_job(2000), first=10))
    mirror.told("m-gpu", replace(gpu_node("gpu"), ready=False))
    come(mirror, node("gpu", ready=False))
    assert mirror.settle(SECOND).let_go == ()
    mirror.apply([node("gpu", kept_for="reserved")])
    found = mirror.settle(2 * SECOND)
    assert (found.let_go, found.reserved) == ((), ()), "nobody is sent to a node that is not whole"
    assert mirror.next_timer() == 122 * SECOND
    mirror.apply([gpu_node("gpu", kept_for="reserved")])
    found = mirror.settle(40 * SECOND)
    assert [len(uids) for _, uids in found.reserved] == [2] and not found.let_go
    assert mirror.settle(70 * SECOND).let_go == ("m-gpu",)


def test_a_node_that_never_shows_its_devices_opens_after_two_minutes() -> None:
    mirror = looked(pods(3, shape(2000)), pods(2, gpu_job(2000), first=10))
    mirror.told("m-gpu", replace(gpu_node("gpu"), ready=False))
    come(mirror, node("gpu"))
    assert mirror.settle(SECOND).let_go == ()
    assert mirror.settle(120 * SECOND).let_go == ()
    assert mirror.settle(121 * SECOND).let_go == ("m-gpu",)


def test_a_node_that_is_not_ready_is_let_go_when_nothing_that_few_nodes_would_do_for_lacks_room() -> None:
    mirror = looked(pods(3, shape(2000)), pods(1, alone(), first=10))
    come(mirror, node("a", 1, ready=False))
    assert mirror.settle(SECOND).let_go == (), "not all of it is known"
    mirror.apply([f.PodGone("alone-waiting-010")])
    assert mirror.settle(2 * SECOND).let_go == ("m-a",)
