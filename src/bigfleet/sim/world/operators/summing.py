"""An operator as the reference has it: roll-ups are sums per profile, nodes are empty or not."""

from __future__ import annotations

import random

from msgspec.structs import replace

from bigfleet.engine.batches import Rollup
from bigfleet.shard.contract import events as ev
from bigfleet.sim.world.cluster import Cluster


class SumReports:
    """What one cluster's operator says of its pods and nodes; `mute` makes it report no demand at all."""

    def __init__(self, cluster: Cluster, shuffle: random.Random | None) -> None:
        self.mute = False
        self._was_mute = False
        self._said_on: int | None = None
        self._cluster = cluster
        self._shuffle = shuffle

    def reports(self, session: int, anew: bool, now: int) -> list[ev.Event]:
        if anew:
            self._cluster.report_nodes_anew()
        changed = self._cluster.emptied_or_filled()
        return [ev.NodeReported(session, machine, ready=True, empty=empty) for machine, empty in changed]

    def rollup(self, session: int, timestamp: int, now: int) -> ev.RollupReceived:
        cluster = self._cluster
        if session == self._said_on and not cluster.dirty and self.mute == self._was_mute:
            return ev.RollupReceived(session, cluster.name, timestamp, None, unchanged=True)
        rollup = cluster.empty_rollup() if self.mute else cluster.rollup()
        if self._shuffle is not None:
            rollup = _permuted(rollup, self._shuffle)
        self._said_on, self._was_mute = session, self.mute
        return ev.RollupReceived(session, cluster.name, timestamp, rollup)


def _permuted(rollup: Rollup, dice: random.Random) -> Rollup:
    """The same demand with its rows in another order."""
    order = list(range(len(rollup)))
    dice.shuffle(order)
    return replace(
        rollup,
        profile=rollup.profile[order],
        group=rollup.group[order],
        aggregate=rollup.aggregate[order],
        min_unit=rollup.min_unit[order],
    )
