"""Two providers that use the same ids: nodes of one cluster get names of their own, and people find both machines."""

from __future__ import annotations

import re

import pytest

from bigfleet.model.names import is_object_name
from bigfleet.shard.contract.frames import BootstrapRequest, NodeState
from tests.strategies.shard_world import S, World, cpu, test_config


def names(world: World, *, shared: bool = True, late: str = "") -> dict[str, str]:
    """Machine → name its node was told to register under, when every machine of both providers serves one cluster."""
    for name in world.config.providers:
        if name == late:
            world.providers[name].list_latency = 20.0
        world.providers[name].several(2, "a" if shared else f"{name}-")
    operator = world.operator("c")
    operator.send(cpu("c", 4))
    world.run(90)
    assert len(world.providers["p"].configured("c")) == len(world.providers["q"].configured("c")) == 2
    return {request.machine: request.node_name for request in operator.of(BootstrapRequest)}


@pytest.mark.parametrize("late", ["p", "q"])
def test_nodes_of_one_cluster_are_told_different_valid_names_whoever_was_listed_first(late: str) -> None:
    world = World(config=test_config(providers=("p", "q")))
    told = names(world, late=late)
    assert set(told) == {"a0", "a1", "q/a0", "q/a1"}
    assert told["a0"] == "a0" and told["a1"] == "a1"
    assert len(set(told.values())) == 4 and all(map(is_object_name, told.values()))
    assert re.fullmatch(r"q-a0-[0-9a-f]{10}", told["q/a0"])
    states = {frame.machine: frame.node_name for frame in world.operators["c"].of(NodeState)}
    assert states == told


def test_a_restart_repeats_the_names() -> None:
    world = World(config=test_config(providers=("p", "q")))
    told = names(world)
    world.crash()
    operator = world.operators["c"]
    operator.frames.clear()
    operator.connect()
    operator.report()
    world.run(30)
    states = {frame.machine: frame.node_name for frame in operator.of(NodeState)}
    assert states == told


def test_ids_that_are_not_shared_are_the_names_as_ever() -> None:
    world = World(config=test_config(providers=("p", "q")))
    assert names(world, shared=False) == {"p-0": "p-0", "p-1": "p-1", "q/q-0": "q-0", "q/q-1": "q-1"}


def test_an_id_that_turns_up_later_leaves_the_names_in_use_alone_and_gets_one_of_its_own() -> None:
    world = World(config=test_config(providers=("p", "q")))
    world.providers["q"].several(2, "a")
    operator = world.operator("c")
    operator.send(cpu("c", 2))
    world.run(30)
    assert {request.machine: request.node_name for request in operator.of(BootstrapRequest)} == {
        "q/a0": "a0",
        "q/a1": "a1",
    }
    world.providers["p"].several(2, "a")
    operator.send(cpu("c", 4))
    world.run(60)
    told = {request.machine: request.node_name for request in operator.of(BootstrapRequest)}
    assert set(told) == {"a0", "a1", "q/a0", "q/a1"} and len(set(told.values())) == 4
    states = {frame.machine: frame.node_name for frame in operator.of(NodeState)}
    assert states == told


def test_every_machine_answers_to_its_provider_and_id_and_to_its_key() -> None:
    world = World(config=test_config(providers=("p", "q")))
    names(world)
    read = world.core.read
    for name, provider, key in (("p/a0", "p", "a0"), ("a0", "p", "a0"), ("q/a0", "q", "q/a0")):
        view = read.machine(name)
        assert view is not None and (view.provider, view.key) == (provider, key) and view.story
    assert read.machine("r/a0") is None and read.machine("p/a9") is None


def test_the_states_of_the_fleet_are_right() -> None:
    world = World(config=test_config(providers=("p", "q")))
    names(world)
    assert {world.state_of(key) for key in ("a0", "a1", "q/a0", "q/a1")} == {S.CONFIGURED}
