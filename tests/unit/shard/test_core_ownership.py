"""Ownership: by domain, by the coordinator's table, by transfer; machines of others are known but not acted on."""

from __future__ import annotations

from bigfleet.shard.contract import events as ev
from tests.strategies.shard_world import OLD, S, World, cpu, test_config

ZONE = "topology.kubernetes.io/zone"
RACK = "topology.bigfleet/rack"


def zoned(**config: object) -> World:
    world = World(test_config(**config))
    world.provider.several(3, "a", zone="a")
    world.provider.several(3, "b", zone="b")
    return world


def test_only_machines_of_the_given_domains_are_used() -> None:
    world = zoned(domain=((ZONE, "b"),))
    world.operator("c").send(cpu("c", 6))
    world.run(30)
    assert world.provider.configured("c") == ["b0", "b1", "b2"]
    assert world.core.published.machines == 3 and len(world.core.state.fleet.machines) == 6


def test_with_a_coordinator_and_no_table_nothing_is_touched() -> None:
    world = zoned(with_coordinator=True)
    operator = world.operator("c")
    operator.send(cpu("c", 1))
    world.run(30)
    assert not world.provider.calls
    assert [ack.outcome for ack in operator.of(ev.Acknowledgement)][-1] == "applied"


def test_the_table_is_obeyed_journalled_and_survives_a_restart() -> None:
    world = zoned(with_coordinator=True)
    world.post(ev.OwnershipReceived(3, 7, ((ZONE, "a"),), assigned_elsewhere=((ZONE, "b"),), default_owner=False))
    operator = world.operator("c")
    operator.send(cpu("c", 6))
    world.run(30)
    assert world.provider.configured("c") == ["a0", "a1", "a2"]
    world.crash()
    world.run(5)
    assert world.core.published.ownership_version == 7
    assert world.core.published.machines == 3


def test_the_first_key_with_an_assigned_value_decides() -> None:
    world = World(test_config(with_coordinator=True))
    world.provider.add("m", zone="a", labels={RACK: "r1"})
    world.provider.add("n", zone="a", labels={RACK: "r2"})
    world.post(ev.OwnershipReceived(1, 1, ((ZONE, "a"),), assigned_elsewhere=((RACK, "r1"),), default_owner=False))
    world.run(5)
    owned = {key for key, record in world.core.state.fleet.machines.items() if record.owned}
    assert owned == {"n"}


def test_a_stale_term_changes_nothing() -> None:
    world = zoned(with_coordinator=True)
    world.post(ev.OwnershipReceived(5, 1, (), default_owner=True))
    world.run(5)
    world.post(ev.OwnershipReceived(4, 2, (), default_owner=False))
    world.run(5)
    assert world.core.published.machines == 6 and world.core.published.term == 5


def test_a_relabelled_machine_keeps_its_owner() -> None:
    world = zoned(domain=((ZONE, "a"),))
    world.run(2)
    unit = world.provider.units["a0"]
    from dataclasses import replace

    unit.shape = replace(unit.shape, zone="b")
    world.run(15)
    assert world.core.state.fleet.machines["a0"].owned


def test_released_machines_are_given_up_for_good_and_the_answer_repeats() -> None:
    world = zoned()
    operator = world.operator("c")
    operator.send(cpu("c", 1))
    world.run(15)
    world.post(ev.TransferAsked("t1", 2, zone="a"))
    world.post(ev.TransferAsked("t1", 2, zone="a"))
    first, second = world.released
    assert first == second and first.machines == ("a1", "a2")
    operator.send(cpu("c", 6))
    world.run(30)
    assert world.provider.configured("c") == ["a0", "b0", "b1", "b2"]
    world.crash()
    operator.connect()
    operator.report()
    world.run(30)
    assert world.provider.configured("c") == ["a0", "b0", "b1", "b2"]


def test_only_free_machines_are_released() -> None:
    world = zoned()
    world.provider.several(2, "s", S.SPECULATIVE)
    world.operator("c").send(cpu("c", 6))
    world.run(20)
    world.post(ev.TransferAsked("idle", 9))
    world.post(ev.TransferAsked("slots", 9, speculative=True))
    assert [len(released.machines) for released in world.released] == [0, 2]


def test_an_older_version_of_the_table_changes_nothing() -> None:
    world = zoned(with_coordinator=True)
    world.post(ev.OwnershipReceived(1, 5, (), default_owner=True))
    world.post(ev.OwnershipReceived(1, 4, (), default_owner=False))
    world.run(5)
    assert world.core.published.ownership_version == 5 and world.core.published.machines == 6


def test_a_drain_for_another_shard_takes_the_lowest_priorities_and_keeps_the_machines_free() -> None:
    world = World(test_config())
    world.provider.several(3, "m")
    operator = world.operator("c")
    operator.send(cpu("c", 1, priority=10), cpu("c", 1, priority=500), cpu("c", 1, priority=2000))
    world.run(20)
    low = [key for key, each in world.core.state.fleet.machines.items() if each.stamp.priority == 10]
    world.post(ev.DrainAsked("d1", 1000, count=1))
    world.post(ev.DrainAsked("d1", 1000, count=1))
    world.run(60)
    world.crash()
    world.run(20)
    world.post(ev.DrainAsked("d1", 1000, count=1))
    assert [list(each.machines) for each in world.released] == [low, low, low]
    assert world.state_of(low[0]) == S.IDLE, "its own demand would have it, and must leave it"
    (order,) = [each for each in operator.of(ev.ReclaimInstruction) if each.preemptor_priority == 1000]
    assert order.nodes == (low[0],)


def test_a_drain_for_another_shard_spares_higher_priorities_and_a_paused_shard() -> None:
    world = World(test_config())
    world.provider.several(2, "m", zone="a")
    world.operator("c").send(cpu("c", 2, priority=500))
    world.run(20)
    world.post(ev.DrainAsked("high", 500, count=2))
    world.post(ev.DrainAsked("elsewhere", 1000, count=2, zone="b"))
    world.post(ev.DrainAsked("named", 1000, machines=("m1", "unknown")))
    assert [each.machines for each in world.released] == [(), (), ("m1",)]
    world.post(ev.RailsSet(True, False, "test"))
    world.post(ev.DrainAsked("paused", 1000, count=2))
    assert world.released[-1].machines == ()


def test_a_cluster_of_another_shard_is_referred_there_once_it_has_no_machines_here() -> None:
    world = zoned(with_coordinator=True)
    table = ev.OwnershipReceived(
        1, 1, (), default_owner=True, clusters=("mine",), referrals=(("other", "10.0.0.9:7780"),)
    )
    world.post(ev.OwnershipReceived(1, 0, (), default_owner=True))
    held = world.operator("other")
    held.send(cpu("other", 1))
    world.run(20)
    world.post(table)
    assert world.core.state.sessions.of("other") is not None, "its machine keeps it here"
    held.disconnect()
    for key in list(world.core.state.fleet.bound["other"]):
        world.provider.lose_host(key)
    world.run(60)
    world.crash()
    world.run(20)
    able, old, mine = world.operator("other"), world.operator("other", OLD), world.operator("mine")
    assert [(each.code, each.referral) for each in able.closed[:1]] == [
        (ev.CloseCode.FAILED_PRECONDITION, "10.0.0.9:7780")
    ]
    assert not old.closed and not mine.closed, "who cannot be sent elsewhere is kept and credited"
