"""The product as the judge's candidate: operators with their mirrors, a shard with its engine, a provider behind it.

Owns the wiring and the bills. The simulator's site runs the production cores on its event kernel; clusters are the
judge's world; machines are paid for from their Create to their Delete, what is reserved always. Nothing is decided
here, and nothing of the world is told to anybody except through the operators' mirrors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.quality.cluster import JudgedCluster
from bench.quality.kinds import UNLIMITED, Flags, Ints
from bench.quality.offers import NAMES, PROVIDER, catalogue, offerings
from bench.quality.world import BOOT_S, CYCLE_S, World
from bigfleet.engine.engine import Engine
from bigfleet.engine.results import ActionKind, Disposition
from bigfleet.model.machine import MachineState
from bigfleet.model.proportion import proportion
from bigfleet.provider.kit.core.records import MachineRecord
from bigfleet.shard.contract import events as ev
from bigfleet.shard.contract.config import ShardConfig
from bigfleet.sim.scenario.scenario import ClusterSpec, Mode, OperatorKind
from bigfleet.sim.world.pods import ForSale, Kinds
from bigfleet.sim.world.site import Site
from bigfleet.virtual.kernel import MILLISECOND, SECOND, Duration, Kernel

_CYCLE = round(CYCLE_S * SECOND)
_SOON = Duration.fixed(MILLISECOND)


def _preferred(world: World) -> Flags:
    """(class, kind): what `prefer-own-proportion.yaml` makes pods of a class prefer: nodes whose label says their own
    proportion of GiB to cores, as the operator writes it. Nodes with devices have none."""
    cores, gib = world.trace.classes.request[:, 0] / 1000, world.trace.classes.request[:, 1] / 1024
    wanted = np.select([gib <= 3 * cores, gib <= 6 * cores, gib <= 12 * cores], ["2", "4", "8"], "16")
    sizes, gpu = world.kinds.capacity, world.kinds.gpu
    shown = [proportion(size[0] / 1000, size[1] / 1024) for size in sizes.tolist()]
    return ((cores > 0) & (gib > 0))[:, None] & (wanted[:, None] == np.array(shown)[None, :]) & ~gpu[None, :]


class Fleet:
    """One shard for all clusters of a world, or one for each of them with its part of what is reserved."""

    def __init__(
        self, world: World, name: str = "engine", *, shared: bool = True, own_proportion: bool = False, **settings: Any
    ) -> None:
        """`own_proportion`: the clusters' owners have applied `prefer-own-proportion.yaml`. `settings` are the shard's,
        where they differ from what a process starts with."""
        self.name = name
        self._world = world
        self._kernel = Kernel(seed=world.trace.seed)
        self._kind_of: dict[str, tuple[int, int]] = {}
        self._bills: dict[str, float] = {}
        self._asked: dict[str, tuple[int, Ints]] = {}
        self._serves: dict[str, int] = {}
        self._clusters: list[JudgedCluster] = []
        # Of each shard's last step; good until its next one.
        self._verdicts: dict[str, Any] = {}
        self.lost_machines = 0
        if own_proportion:
            world.preferred = _preferred(world)
        groups = [list(range(world.trace.clusters))] if shared else [[each] for each in range(world.trace.clusters)]
        self._sites = [self._site(place, members, len(groups), settings) for place, members in enumerate(groups)]
        world.watcher = self
        world.settling.append(self._settle)
        for site in self._sites:
            site.start()

    def _site(self, place: int, members: list[int], parts: int, settings: dict[str, Any]) -> Site:
        world, kinds = self._world, self._world.kinds
        config = ShardConfig(
            id=f"shard-{place}",
            providers=(PROVIDER,),
            incremental_reconcile=True,
            full_list_interval=3600 * SECOND,
            local_bootstrap=True,
            **settings,
        )
        site = Site(
            self._kernel, config, self, self, Engine, mode=Mode.INLINE, rpc=_SOON, session=_SOON, check=False,
            shuffle=None,
        )  # type: ignore[arg-type]  # fmt: skip
        # Bills are by machine, so no two fleets may have one of the same name.
        made = offerings(kinds, world.racks, parts, f"f{place}-" if parts > 1 else "")
        for kind, rack, offering in made:
            self._kind_of.update((offering.machine_id(number), (kind, rack)) for number in range(offering.count))
        site.add_provider(catalogue(made, BOOT_S, world.trace.seed))
        sizes = kinds.capacity * np.array([1, 1024, 1])
        for_sale = [
            ForSale(tuple(size), price, risk)
            for size, price, risk in zip(sizes.tolist(), kinds.price.tolist(), kinds.probability.tolist(), strict=True)
        ]
        for number in members:
            cluster = JudgedCluster(world, number, self._kind_of.__getitem__, self._now)
            self._clusters.append(cluster)
            spec = ClusterSpec(name=cluster.name, eviction=Duration.fixed(0))
            site.add_cluster(spec, cluster, Kinds({}, NAMES, for_sale), OperatorKind.PLACEMENT)  # type: ignore[arg-type]
        return site

    def decide(self, world: World) -> None:
        for site in self._sites:
            for name, member in site.members.items():
                if member.cluster.has_changes():
                    site.demand_changed(name)
        self._kernel.run_until(round(world.now * SECOND) + _CYCLE - 1)
        self._note_causes()

    def _now(self) -> float:
        return self._kernel.now / SECOND

    # ---- pods, as the world tells of them --------------------------------------------------------------------------

    def _of(self, pod: int) -> JudgedCluster:
        return self._clusters[int(self._world.trace.cluster[pod])]

    def waits(self, pod: int) -> None:
        self._of(pod).waits(pod)

    def bound(self, pod: int, row: int) -> None:
        self._of(pod).bound(pod, row)

    def unbound(self, pod: int, row: int) -> None:
        self._of(pod).unbound(pod, row)

    # ---- bills, as the provider's records tell of them -------------------------------------------------------------

    def advance(self, now: int) -> None:
        """Bills are written when a machine goes."""

    def machine(self, before: MachineRecord | None, after: MachineRecord | None) -> None:
        if before is None or after is None or before.state == after.state:
            return
        machine, kind = after.id, self._kind_of[after.id][0]
        owned = bool(self._world.kinds.limit[kind] < UNLIMITED)
        begins = MachineState.CONFIGURING if owned else MachineState.CREATING
        over = (MachineState.IDLE,) if owned else (MachineState.SPECULATIVE,)
        if after.state == begins:
            cluster, room = self._asked.pop(machine)
            self._bills[machine] = self._now()
            self._world.account.bought(self._now(), cluster, kind, room)
            self._serves[machine] = cluster
        elif after.state in over and machine in self._bills:
            paid = self._now() - self._bills.pop(machine)
            self._world.account.returned(self._now(), self._serves.pop(machine), kind, paid)

    def _settle(self) -> None:
        for machine, since in self._bills.items():
            self._world.account.paid(self._kind_of[machine][0], self._world.now - since)

    # ---- decisions, as the shard's listener hears of them ----------------------------------------------------------

    def stepped(self, shard: str, wanted: ev.RunStep, result: Any) -> None:
        world = self._world
        for action in result.actions.rows():
            if action.disposition != Disposition.EMIT:
                continue
            if action.kind in (ActionKind.PROVISION, ActionKind.BOOTSTRAP):
                cluster = self._clusters[int(action.cluster[1:])]
                kind = self._kind_of[action.machine][0]
                rows = [cluster.rows[old] for old in action.replaces if old in cluster.rows]
                room = world.nodes.units[rows].sum(0) @ world.trace.classes.request if rows else None
                self._asked[action.machine] = (
                    cluster.number,
                    world.wanted(cluster.number, kind) if room is None else room,
                )
        self._verdicts[shard] = result.verdicts

    def audited(self, shard: str, record: ev.Audit) -> None: ...

    def logged(self, shard: str, record: ev.Log) -> None: ...

    def _note_causes(self) -> None:
        """Whoever waits for longer than a boot is told of with a cause, or is not. (Looked at only once it is late,
        a pod late by less than a cycle was never seen, whatever had been told of it.)"""
        world = self._world
        waited = [pod for pod in world.waiting if world.now - world.waiting_since[pod] > BOOT_S[1]]
        if not waited:
            return
        explained = {
            (verdict.key.cluster, verdict.key.fingerprint, verdict.key.group)
            for verdicts in self._verdicts.values()
            for verdict in verdicts.unmet()
            if int(verdict.reason)
        }
        world.account.explained.update(pod for pod in waited if self._of(pod).row_key(pod) in explained)
