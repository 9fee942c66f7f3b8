"""What the mirror found reaches the shard unchanged, and a shard of the base contract reads the same sums."""

from __future__ import annotations

from bigfleet.model.profile import Profile
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import Resources
from bigfleet.model.spread import Spread, WhenUnsatisfiable
from bigfleet.model.taint import Toleration
from bigfleet.operator.core.mirror.reports import NodeReport
from bigfleet.operator.core.rows import Row
from bigfleet.operator.report_codec import report_to_wire, rollup_to_wire

PROFILE = Profile(
    [Requirement("rack", Operator.SAME), Requirement("zone", Operator.IN, ("a", "b"))],
    [Spread("zone", 2, WhenUnsatisfiable.DO_NOT_SCHEDULE)],
    7,
    3,
    4,
    [Toleration("gpu", "Exists")],
)
ROW = Row(PROFILE, "g", Resources.of(cpu=500, memory=1024), 6, 2, 3, (("a", 2),), ("port TCP 80 0.0.0.0",))


def test_a_row_is_a_sum_of_units_to_whoever_knows_no_counts() -> None:
    [need] = rollup_to_wire("c", [ROW], timestamp=5, version=9).needs
    assert dict(need.aggregate_resources) == {"cpu": "3", "memory": "6Mi"}
    assert dict(need.min_unit) == {"cpu": "500m", "memory": "1Mi"}
    assert (need.priority, need.group) == (7, "g")
    assert (need.interruption_penalty_bucket, need.reclamation_penalty_bucket) == (3, 4)
    assert [(each.key, each.operator, list(each.values)) for each in need.requirements] == [
        ("rack", 5, []),
        ("zone", 1, ["a", "b"]),
    ]
    assert [(each.topology_key, each.max_skew, each.when_unsatisfiable) for each in need.spread] == [("zone", 2, 1)]


def test_a_row_says_how_many_units_run_and_how_many_have_no_room() -> None:
    [need] = rollup_to_wire("c", [ROW], timestamp=5, version=9).needs
    assert (need.count, need.running, need.stranded) == (6, 2, 3)
    assert dict(need.domain_units) == {"a": 2}
    assert list(need.exclusive) == ["port TCP 80 0.0.0.0"]
    assert [(each.key, each.operator) for each in need.tolerations] == [("gpu", "Exists")]


def test_a_roll_up_says_which_state_of_the_mirror_it_tells() -> None:
    rollup = rollup_to_wire("c", [ROW], timestamp=5, version=9, overhead=Resources.of(cpu=200))
    assert (rollup.cluster_id, rollup.timestamp_unix_nanos, rollup.mirror_version) == ("c", 5, 9)
    assert dict(rollup.node_overhead) == {"cpu": "200m"}


def test_a_penalty_below_half_a_dollar_is_told_beside_its_bucket() -> None:
    cent = Profile([], [], 7, 2, 0, (), 15_625)
    [need] = rollup_to_wire("c", [Row(cent, "", Resources.of(cpu=500), 1, 0, 1)], timestamp=5, version=9).needs
    assert (need.interruption_penalty_bucket, need.interruption_microdollars) == (2, 15_625)


def test_equal_rows_give_equal_bytes() -> None:
    first, second = (rollup_to_wire("c", [ROW], timestamp=5, version=9) for _ in range(2))
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(deterministic=True)


def test_a_node_report_tells_everything() -> None:
    report = NodeReport(
        machine="m",
        node_name="n",
        ready=True,
        empty=False,
        removable=True,
        pinned=True,
        max_pod_priority=5,
        groups=("g",),
        profiles=("p=1",),
        exclusive=("t",),
        closing_since=11,
        allocatable=(("cpu", 4000), ("memory", 2048)),
        used=(("cpu", 1500),),
        reclamation_dollars=1.5,
        interruption_dollars=2.5,
        version=12,
    )
    wire = report_to_wire(report)
    assert (wire.machine_id, wire.node_name, wire.ready, wire.empty, wire.removable) == ("m", "n", True, False, True)
    assert (dict(wire.allocatable), dict(wire.used)) == ({"cpu": "4", "memory": "2Mi"}, {"cpu": "1500m"})
    assert (wire.pinned, wire.max_pod_priority, wire.closing_since, wire.mirror_version) == (True, 5, 11, 12)
    assert (list(wire.groups), list(wire.profiles), list(wire.exclusive)) == (["g"], ["p=1"], ["t"])
    assert (wire.reclamation_dollars, wire.interruption_dollars) == (1.5, 2.5)
