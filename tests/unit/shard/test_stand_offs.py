"""Providers that refuse this shard's tokens: nobody's node is failed for it, nothing is bought for it, people know."""

from __future__ import annotations

from bigfleet.shard.contract import events as ev
from tests.strategies.shard_world import S, World, cpu


def serving(machines: int) -> World:
    world = World()
    world.epoch = 1000
    world.start()
    world.provider.several(machines, "i")
    world.provider.several(machines, "s", S.SPECULATIVE)
    world.operator("c").send(cpu("c", machines))
    world.run(20)
    assert len(world.provider.configured("c")) == machines
    return world


def lose_everything(world: World, epoch: int) -> None:
    """The data directory is gone, and with it the epoch: the next process begins with this one."""
    world.journal.clear()
    world.epoch = epoch - 1
    world.crash()
    operator = world.operators["c"]
    operator.connect()
    operator.report()


def test_a_lower_epoch_fails_no_node_and_buys_nothing() -> None:
    world = serving(6)
    calls = len(world.provider.calls)
    lose_everything(world, 1)
    world.operators["c"].send(cpu("c", 2))
    world.run(200)
    assert world.provider.states()[S.CONFIGURED] == 6
    assert all(world.state_of(f"i{n}") == S.CONFIGURED for n in range(6))
    assert world.provider.states()[S.SPECULATIVE] == 6
    assert "refuses epoch 1 of shard shard-0" in world.core.published.stood_off["p"]
    assert "--min-epoch" in world.core.published.stood_off["p"]
    asked = [call.machine for call in world.provider.calls[calls:]]
    assert len(asked) <= 6, "each machine is asked about once at most before the provider is left alone"
    world.operators["c"].send(cpu("c", 9))
    world.run(60)
    assert len(world.provider.calls) == calls + len(asked)


def test_a_higher_epoch_goes_on_as_if_nothing_had_happened() -> None:
    world = serving(6)
    lose_everything(world, 10**12)
    world.operators["c"].send(cpu("c", 2))
    world.run(200)
    assert len(world.provider.configured("c")) == 2
    assert not world.core.published.stood_off


def test_a_person_ends_a_stand_off() -> None:
    world = serving(2)
    for unit in world.provider.units.values():
        unit.mark = (5000, 1)
    world.operators["c"].send()
    world.run(60)
    assert world.core.published.stood_off
    for unit in world.provider.units.values():
        unit.mark = (0, 0)
    world.post(ev.RailsSet(paused=False, dry_run=False, who="admin"))
    assert not world.core.published.stood_off
    world.run(60)
    assert not world.provider.configured("c")


def test_the_coordinator_does_not_end_a_stand_off() -> None:
    world = serving(2)
    for unit in world.provider.units.values():
        unit.mark = (5000, 1)
    world.operators["c"].send()
    world.run(60)
    world.post(ev.RailsSet(paused=False, dry_run=False, who="coordinator", from_coordinator=True))
    assert world.core.published.stood_off


def test_another_provider_is_still_asked() -> None:
    from tests.strategies.shard_world import test_config

    world = World(test_config(providers=("p", "q")))
    world.providers["p"].several(4, "i", price=1.0)
    world.providers["q"].several(4, "j", price=5.0)
    for unit in world.providers["p"].units.values():
        unit.mark = (5000, 1)
    world.operator("c").send(cpu("c", 4))
    world.run(60)
    assert set(world.core.published.stood_off) == {"p"}
    assert len(world.providers["q"].configured("c")) == 4
