"""Of machines that look the same to a cluster's needs an empty node is drained first."""

from __future__ import annotations

from typing import Any

from bigfleet.model.names import HOSTNAME_LABEL, ZONE_LABEL
from bigfleet.model.requirement import Operator as Op
from bigfleet.model.requirement import Requirement
from bigfleet.shard.contract import events as ev
from tests.strategies.shard_world import Operator, World, cpu, test_config


def bound(*machines: dict[str, Any], **facts: Any) -> tuple[World, Operator]:
    """One cluster that uses every machine; `facts` are of its need."""
    world = World(test_config())
    for index, machine in enumerate(machines):
        world.provider.add(f"i{index}", **machine)
    operator = world.operator("c")
    operator.send(cpu("c", len(machines), **facts))
    world.run(15)
    assert len(world.provider.configured("c")) == len(machines)
    return world, operator


def shrunk(world: World, operator: Operator, machines: int, **facts: Any) -> list[str]:
    """What still runs after the need became smaller."""
    operator.send(cpu("c", machines, **facts))
    world.run(60)
    return world.provider.configured("c")


def report(world: World, operator: Operator, machine: str, *, empty: bool) -> None:
    world.post(ev.NodeReported(operator.session, machine, machine, ready=True, empty=empty))


def test_the_empty_one_of_equal_nodes_goes() -> None:
    world, operator = bound({}, {}, {}, {})
    assert shrunk(world, operator, 3) == ["i0", "i1", "i2"]  # nobody said anything: by id
    world, operator = bound({}, {}, {}, {})
    report(world, operator, "i1", empty=True)
    assert shrunk(world, operator, 3) == ["i0", "i2", "i3"]
    assert any("its node is empty: goes instead of i3" in line.text for line in world.core.story("i1"))


def test_as_many_go_as_were_decided_and_those_decided_that_are_empty_stay_chosen() -> None:
    world, operator = bound(*[{}] * 6)
    for machine in ("i0", "i1", "i4"):
        report(world, operator, machine, empty=True)
    assert shrunk(world, operator, 3) == ["i2", "i3", "i5"]
    world, operator = bound(*[{}] * 6)
    report(world, operator, "i0", empty=True)
    assert shrunk(world, operator, 3) == ["i1", "i2", "i3"]


def test_a_victim_of_preemption_is_an_empty_node_too() -> None:
    world, operator = bound({}, {}, {})
    report(world, operator, "i0", empty=True)
    other = world.operator("d")
    other.send(cpu("d", 1, priority=1_000_000))
    world.run(60)
    assert world.provider.configured("d") == ["i0"] and world.provider.configured("c") == ["i1", "i2"]


def test_a_node_that_has_pods_again_is_like_any_other() -> None:
    world, operator = bound({}, {}, {})
    report(world, operator, "i0", empty=True)
    report(world, operator, "i0", empty=False)
    assert shrunk(world, operator, 2) == ["i0", "i1"]


def test_what_was_said_of_an_earlier_binding_does_not_count() -> None:
    world, operator = bound({}, {}, {})
    report(world, operator, "i0", empty=True)
    assert shrunk(world, operator, 0) == []
    operator.send(cpu("c", 3))
    world.run(30)
    assert shrunk(world, operator, 2) == ["i0", "i1"]


def test_a_new_stream_begins_without_what_the_old_one_said() -> None:
    world, operator = bound({}, {}, {})
    report(world, operator, "i0", empty=True)
    operator.disconnect()
    operator.connect()
    world.run(5)
    assert shrunk(world, operator, 2) == ["i0", "i1"]


def test_price_decides_before_emptiness() -> None:
    world, operator = bound({"price": 1.0}, {"price": 1.0}, {"price": 5.0})
    report(world, operator, "i0", empty=True)
    assert shrunk(world, operator, 2) == ["i0", "i1"]


def test_only_labels_somebody_asks_about_make_machines_different() -> None:
    zones = ({"zone": "b"}, {"zone": "a"}, {"zone": "a"})
    world, operator = bound(*zones)
    report(world, operator, "i0", empty=True)
    assert shrunk(world, operator, 2) == ["i1", "i2"]

    asked = {"where": [Requirement(ZONE_LABEL, Op.EXISTS, ())]}
    world, operator = bound(*zones, **asked)
    report(world, operator, "i0", empty=True)
    assert shrunk(world, operator, 2, **asked) == ["i0", "i1"]


def test_a_spread_over_hosts_makes_no_difference_a_spread_over_zones_does() -> None:
    zones = ({"zone": "b"}, {"zone": "a"}, {"zone": "a"})
    for key, left in ((HOSTNAME_LABEL, ["i1", "i2"]), (ZONE_LABEL, ["i0", "i1"])):
        world, operator = bound(*zones, anyway=key)
        report(world, operator, "i0", empty=True)
        assert shrunk(world, operator, 2, anyway=key) == left


def test_a_machine_that_rests_is_no_stand_in() -> None:
    world, operator = bound({}, {}, {})
    report(world, operator, "i0", empty=True)
    record = world.core.state.fleet.machines["i0"]
    world.core.state.rest_machine(record, world.now + 10**12)
    assert shrunk(world, operator, 2) == ["i0", "i1"]


def test_machines_bound_for_different_needs_are_not_the_same() -> None:
    world = World(test_config())
    world.provider.several(3, "i")
    operator = world.operator("c")
    operator.send(cpu("c", 2, reclamation=64.0))
    world.run(15)
    operator.send(cpu("c", 2, reclamation=64.0), cpu("c", 1))
    world.run(15)
    (other,) = (key for key in ("i0", "i1", "i2") if "rpb=1|" in world.core.state.fleet.machines[key].stamp.fingerprint)
    first, second = sorted({"i0", "i1", "i2"} - {other})
    report(world, operator, first, empty=True)
    operator.send(cpu("c", 2, reclamation=64.0))
    world.run(60)
    assert world.provider.configured("c") == [first, second]
