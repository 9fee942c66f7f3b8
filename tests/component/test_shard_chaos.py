"""After kills, hangs, cut lines, lost stores and jumping clocks all is as it should be. `make chaos` does more."""

from __future__ import annotations

from pathlib import Path

import pytest

from bigfleet.model.machine import CallKind
from tests.strategies.builders import SECOND
from tests.strategies.shard_world import S, World, cpu, dice, test_config
from tools.chaos import chaos

WORST = (
    "invisible machines",
    "sold out",
    "lost data directory",
    "full disk",
    "poisonous roll-up",
    "expired certificate",
)


async def test_thirty_events_of_real_processes_leave_nothing_broken(tmp_path: Path) -> None:
    report = await chaos(30, 11, tmp_path, compiled=False)
    assert report["problems"] == [], report
    assert report["lives"]["shard"] > 1 and report["lives"]["provider"] > 1 and report["meddled"], report


async def test_the_worst_events_of_all_leave_nothing_broken(tmp_path: Path) -> None:
    """Machines nobody can see, stock-outs, a lost data directory, a full disk, poison, an expired certificate."""
    report = await chaos(len(WORST), 6, tmp_path, compiled=False, only=WORST)
    assert report["problems"] == [], report
    # Which call meets a hidden machine first is a matter of time.
    hidden = sum(count for what, count in report["meddled"].items() if what.endswith(" hidden"))
    assert report["lives"]["shard"] >= 2 and hidden > 0, report


@pytest.mark.parametrize("seed", range(4))
def test_a_wall_clock_that_jumps_between_two_lives_loses_nothing_and_buys_nothing_twice(seed: int) -> None:
    """Within a process time is monotonic; what the journal remembers may lie hours ahead or behind in the next one."""
    world = World(test_config(reclaim_grace=20 * SECOND))
    world.provider.several(12, "slot", S.SPECULATIVE)
    world.provider.work = dict.fromkeys(CallKind, 2.0)
    throw = dice(seed)
    clusters = [world.operator("a"), world.operator("b")]
    wanted = dict.fromkeys(("a", "b"), 3)
    for cluster in clusters:
        cluster.send(cpu(cluster.cluster, 3))
    for _ in range(20):
        world.run(throw.uniform(0.5, 8))
        _set_clock(world, throw.choice((-3600, -90, -5, 5, 90, 3600, 86_400)))
        for cluster in clusters:
            cluster.connect()
            if throw.random() < 0.3:
                wanted[cluster.cluster] = throw.randint(0, 5)
            cluster.send(cpu(cluster.cluster, wanted[cluster.cluster]))
        serving = [u for u in world.provider.units.values() if u.state in (S.CREATING, S.CONFIGURING, S.CONFIGURED)]
        assert len(serving) <= 10, "never more than both clusters ever wanted"
    world.run(900)
    for name, count in wanted.items():
        assert len(world.provider.configured(name)) == count
    assert len(world.provider.units) == 12 and not list(world.core.state.operations)


def _set_clock(world: World, seconds: int) -> None:
    """The shard dies, somebody sets the clock, and a new shard starts; the rest of the world goes on as it was."""
    jump = seconds * SECOND
    world.now += jump
    world._due = [(at + jump, count, action) for at, count, action in world._due]
    world.crash()
