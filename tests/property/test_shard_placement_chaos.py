"""Clusters that report placement in random trouble: crashes, lost streams and machines, refusals, drains that hang.

When trouble is over every pod runs, nothing stays open, and no machine is kept that its cluster does not use.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from bigfleet.model.machine import CallKind
from bigfleet.shard.contract.events import Table
from tests.strategies.placing_operator import PlacingOperator
from tests.strategies.shard_world import S, World, test_config

MINUTE = 60.0
SELDOM: dict[str, Any] = {
    "cycle_interval": round(20e9),
    "reconcile_interval": round(20e9),
    "transition_poll_interval": 0,
    "eviction_rate": 1.0,
    "consolidate_closing": round(120e9),
    "consolidate_settle": round(60e9),
}


class Trouble:
    """Two clusters on three kinds of machines, and whatever may happen to them."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.world = World(config=test_config(**SELDOM))
        provider = self.world.provider
        provider.work = {CallKind.CREATE: 30.0, CallKind.CONFIGURE: 10.0, CallKind.DRAIN: 5.0, CallKind.DELETE: 5.0}
        for name, cores, price in (("small", 4, 1.0), ("large", 16, 3.2), ("dear", 8, 4.0)):
            provider.several(12, name, S.SPECULATIVE, type=name, price=price, size={"cpu": cores * 1000})
        self.clusters = [PlacingOperator(self.world, name) for name in ("a", "b")]
        for cluster in self.clusters:
            cluster.old_after = 60.0

    def play(self, events: int) -> None:
        deeds = (self.grow, self.grow, self.shrink, self.crash, self.cut, self.lose, self.refuse, self.hang)
        for _ in range(events):
            self.dice.choice(deeds)()
            self.world.run(self.dice.choice((3, 20, 90, 300)))

    def one(self) -> PlacingOperator:
        return self.dice.choice(self.clusters)

    def grow(self) -> None:
        self.one().start(self.dice.randint(1, 6), self.dice.choice((1, 2, 3)))

    def shrink(self) -> None:
        cluster = self.one()
        for pod in self.dice.sample(cluster.pods, len(cluster.pods) // 2):
            cluster.pods.remove(pod)

    def crash(self) -> None:
        self.world.crash()
        for cluster in self.clusters:
            self.world.after(self.dice.choice((0.1, 5, 30)), lambda cluster=cluster: self._back(cluster))

    def cut(self) -> None:
        cluster = self.one()
        cluster.disconnect("network")
        self.world.after(self.dice.choice((1, 40)), lambda: self._back(cluster))

    def _back(self, cluster: PlacingOperator) -> None:
        if not cluster.session:
            cluster.connect()

    def lose(self) -> None:
        units = self.world.provider.units
        if found := [name for name, unit in units.items() if unit.state == S.CONFIGURED]:
            self.world.provider.lose_host(self.dice.choice(sorted(found)))

    def refuse(self) -> None:
        cluster = self.one()
        cluster.refusals.of = set(cluster.nodes)
        self.world.after(200, lambda: cluster.refusals.of.clear())

    def hang(self) -> None:
        cluster = self.one()
        cluster.evict_after = 400.0
        self.world.after(300, lambda: setattr(cluster, "evict_after", 1.0))

    def settle(self) -> None:
        for cluster in self.clusters:
            cluster.refusals.of.clear()
            cluster.evict_after = 1.0
        self.world.run(40)
        for cluster in self.clusters:
            self._back(cluster)
        self.world.run(25 * MINUTE)


@pytest.mark.parametrize("seed", range(4))
def test_after_trouble_every_pod_runs_and_nothing_is_left_over(seed: int) -> None:
    trouble = Trouble(seed)
    trouble.play(14)
    trouble.settle()
    world = trouble.world
    for cluster in trouble.clusters:
        assert not cluster.waiting, f"{len(cluster.waiting)} pods of {cluster.cluster} wait"
        bound = world.provider.configured(cluster.cluster)
        assert sorted(cluster.nodes) == bound, "the cluster knows its machines"
        assert all(cluster.on(machine) for machine in bound), "none of them is empty"
    assert not list(world.core.consolidation.moves)
    assert not [key for key in world.journal if key[0] in (Table.DRAIN, Table.INTENT)]
    assert not len(world.core.state.operations)
