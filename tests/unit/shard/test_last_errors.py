"""A provider that quotes user data in its errors shows it to nobody, also when the shard does not know it any more."""

from __future__ import annotations

import pytest

from bigfleet.model.blob import REMOVED, WITHHELD
from bigfleet.model.machine import CallKind
from tests.strategies.shard_world import USER_DATA, S, World, cpu

TOKEN = "abcdef.0123456789abcdef"
assert TOKEN.encode() in USER_DATA
QUOTES_IT = f"cloud-init of i0 failed: {USER_DATA.decode()}"


def shown(world: World) -> str:
    """Everything a person could be shown of it."""
    told = [repr(world.core.state.fleet.machines["i0"].error), repr(world.core.read.story("i0"))]
    told += [repr(line) for line in (*world.log, *world.audits)]
    told += [repr(frame) for operator in world.operators.values() for frame in operator.frames]
    return "\n".join(told)


def failed(world: World, text: str = QUOTES_IT) -> None:
    world.provider.breaks("i0", text)
    world.run(60)
    assert world.state_of("i0") == S.FAILED


def configured() -> World:
    world = World()
    world.provider.add("i0")
    world.operator("c").send(cpu("c", 1))
    world.run(15)
    assert world.provider.configured("c") == ["i0"]
    return world


def test_the_words_of_a_machine_that_was_configured_long_ago_are_cleaned() -> None:
    world = configured()
    failed(world)
    assert TOKEN not in shown(world)
    assert world.core.state.fleet.machines["i0"].error.startswith("cloud-init of i0 failed: #!/bin/sh\njoin --token ")
    assert WITHHELD in world.core.state.fleet.machines["i0"].error


def test_what_is_said_again_after_a_restart_is_cleaned() -> None:
    world = World()
    world.provider.add("i0")
    world.provider.work[CallKind.CONFIGURE] = 300
    world.operator("c").send(cpu("c", 1))
    world.run(15)
    failed(world)
    first = world.core.state.fleet.machines["i0"].error
    assert REMOVED in first and TOKEN not in shown(world)
    world.run(60)
    assert world.core.state.fleet.machines["i0"].error == first, "what this process cleaned stays as it is"
    world.crash()
    world.run(60)
    assert WITHHELD in world.core.state.fleet.machines["i0"].error and TOKEN not in shown(world)


def test_other_words_than_those_that_were_cleaned_are_cleaned_too() -> None:
    world = configured()
    failed(world)
    failed(world, f"{QUOTES_IT} (attempt 2)")
    assert TOKEN not in shown(world) and "(attempt 2)" in world.core.state.fleet.machines["i0"].error


def test_a_binding_that_an_earlier_process_began_is_cleaned_without_its_blob() -> None:
    world = World()
    world.provider.add("i0")
    world.provider.work[CallKind.CONFIGURE] = 300
    world.operator("c").send(cpu("c", 1))
    world.run(15)
    world.crash()
    world.run(5)
    assert world.core.state.operations.on("i0") is not None
    failed(world)
    assert TOKEN not in shown(world)


def test_a_drain_that_fails_tells_no_blob() -> None:
    world = configured()
    world.provider.work[CallKind.DRAIN] = 300
    world.operators["c"].send()
    world.run(30)
    assert world.state_of("i0") == S.DRAINING
    failed(world)
    assert TOKEN not in shown(world)


@pytest.mark.parametrize("text", ["host broke", "the disk of i0 is full"])
def test_ordinary_words_are_told_as_they_are_also_after_a_restart(text: str) -> None:
    world = configured()
    failed(world, text)
    assert world.core.state.fleet.machines["i0"].error == text
    world.crash()
    world.run(60)
    assert world.core.state.fleet.machines["i0"].error == text


def test_why_a_purchase_failed_is_told_in_full() -> None:
    world = World()
    world.provider.add("i0", S.SPECULATIVE)
    world.provider.work[CallKind.CREATE] = 300
    world.operator("c").send(cpu("c", 1))
    world.run(15)
    world.provider.breaks("i0", "request 8f14e45fceea167a: no capacity")
    world.run(60)
    assert world.core.state.fleet.machines["i0"].error == "request 8f14e45fceea167a: no capacity"


def test_words_that_are_repeated_are_told_once() -> None:
    world = configured()
    failed(world)
    lines = len(world.core.read.story("i0"))
    world.run(300)
    assert len(world.core.read.story("i0")) == lines
