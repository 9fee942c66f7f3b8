"""The demonstration's parts and what the audience can do to them.

Real parts, all in this process but each behind its own socket on loopback: a coordinator, two shards, a provider of
machines that do not exist, and four clusters that exist only as their operators. Nothing here decides who gets which
machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import grpc

from bigfleet.coordinator.core.policy import SECOND, Policy
from bigfleet.coordinator.server.process import CoordinatorProcess
from bigfleet.coordinator.server.settings import CoordinatorSettings
from bigfleet.demo.narrate import Line, Page, Story, listed
from bigfleet.demo.sites import Site, Sites
from bigfleet.demo.view import ClusterMoment, Moment
from bigfleet.demo.watching import SeenMachine, Sight, Watcher
from bigfleet.demo.workloads import CRITICAL_PODS, SETTLEMENT, ClusterDemand, four_clusters
from bigfleet.model.names import REFERRALS, ZONE_LABEL
from bigfleet.provider.fake.catalogue import LATENCIES, Catalogue, parse_catalogue
from bigfleet.provider.fake.commands import CloseZone, OpenZone
from bigfleet.provider.fake.process import FakeProcess, FakeSettings
from bigfleet.shard.process import ShardProcess
from bigfleet.shard.rehearsal.placing import PlacingOperator
from bigfleet.shard.rehearsal.synthetic import ALL_CAPABILITIES
from bigfleet.shard.settings import settings_from
from bigfleet.transport import channel
from bigfleet.wire import coordinator_pb2, coordinator_pb2_grpc

# Waits a person would have to sit through are short; everything else is as in production.
SETTINGS: Mapping[str, object] = {
    "listen": "127.0.0.1:0",
    "metrics-addr": "127.0.0.1:0",
    "cycle-interval": "1s",
    "early-cycle-interval": "200ms",
    "reconcile-interval": "500ms",
    "reclaim-hold": "2s",
    "empty-hold": "2s",
    "boot-time": "1s",
    "reclaim-grace": "30s",
    "reclaim-cap-fraction": 0,
    "idle-hold-on-demand": "3s",
    "idle-hold-spot": "3s",
    "machine-backoff": "1s",
    "breaker-delay": "2s",
    "loss-confirm-interval": "1s",
    "shutdown-grace": "2s",
    # Whoever ends all work here means it, and does not wait for it to be said three times.
    "empty-rollup-guard": False,
    "coordinator-heartbeat-interval": "500ms",
}
# What is missing for a second is looked for elsewhere, and what came stays for twenty.
POLICY = Policy(after=SECOND, cooldown=20 * SECOND, initial_slices=False)
REBALANCE_SECONDS = 0.5
# The first owns all that no other does.
MAIN, EDGE = "main", "edge"
EDGE_ZONE = "edge-1"
# Operators that stay where they dialled.
STAYING = ALL_CAPABILITIES - {REFERRALS}
# For those who do not watch.
QUICK_SETTINGS: Mapping[str, object] = {
    **SETTINGS,
    "reclaim-hold": "500ms",
    "empty-hold": "500ms",
    "boot-time": "100ms",
    "idle-hold-on-demand": "1s",
    "idle-hold-spot": "1s",
}
DRAIN_SECONDS = 0.6
ROLLUP_SECONDS = 1.0
STOP_SECONDS = 5.0
RESET_SECONDS = 60.0
POLL_SECONDS = 0.1
CLOUD_ZONES = ("eu-west-1a", "eu-west-1b", "eu-west-1c")


def demo_catalogue(*, quick: bool = False) -> Catalogue:
    """The fleet for sale; `quick` for those who do not watch."""
    text = resources.files(__package__).joinpath("catalogue.yaml").read_text(encoding="utf-8")
    catalogue = parse_catalogue(text, "demonstration catalogue")
    return replace(catalogue, latencies=LATENCIES["quick"]) if quick else catalogue


class Cluster:
    """One cluster: what it wants, and the operator that says so."""

    def __init__(self, demand: ClusterDemand, operator: PlacingOperator) -> None:
        self.demand = demand
        self.operator = operator
        self._early = asyncio.Event()

    @property
    def name(self) -> str:
        return self.demand.name

    async def run(self) -> None:
        self.operator.want(self.demand.needs())
        await self.operator.run(ROLLUP_SECONDS, self._early)

    def tell(self) -> None:
        """Demand changed: roll it up now."""
        self.operator.want(self.demand.needs())
        self._early.set()

    async def heard(self) -> None:
        """Wait until the shard has decided on this demand."""
        asked = time.time_ns()
        self.tell()
        await self.operator.until(lambda heard: any(ack.rollup_timestamp >= asked for ack in heard.acks), what="an ack")


class Scene:
    """Everything that runs. Make it with `opened`."""

    def __init__(
        self, provider: FakeProcess, coordinator: CoordinatorProcess, sites: Sites, clusters: tuple[Cluster, ...]
    ) -> None:
        self.provider = provider
        self.coordinator = coordinator
        self.sites = sites
        self.clusters = {cluster.name: cluster for cluster in clusters}
        self.down: set[str] = set()
        self.resetting = False
        self._size = provider.provider.cloud.catalogue.size
        self._last_seen: dict[str, SeenMachine] = {}
        self._parts: list[asyncio.Task[None]] = []

    @classmethod
    @asynccontextmanager
    async def opened(
        cls, directory: Path, catalogue: Catalogue, settings: Mapping[str, object] = SETTINGS
    ) -> AsyncIterator[Scene]:
        """All parts running; ended in order at the end of the block. `directory` gets journals and audit logs."""
        async with AsyncExitStack() as stack:
            provider = FakeProcess(FakeSettings("127.0.0.1:0", catalogue))
            await provider.start()
            stack.push_async_callback(provider.stop)
            coordinator = await stack.enter_async_context(
                CoordinatorProcess.opened(
                    CoordinatorSettings(
                        listen="127.0.0.1:0",
                        metrics_addr="0",
                        data_dir=directory / "coordinator",
                        rebalance_seconds=REBALANCE_SECONDS,
                        policy=POLICY,
                    )
                )
            )
            links = {}
            sites: list[Site] = []
            page = Page()
            for name in (MAIN, EDGE):
                process, config = settings_from(
                    {
                        **settings,
                        "id": name,
                        "provider": [f"demo={provider.address}"],
                        "coordinator-addr": coordinator.address,
                        "data-dir": str(directory / name),
                        "audit-log": str(directory / name / "audit.jsonl"),
                    }
                )
                shard = await stack.enter_async_context(ShardProcess.opened(process, config))
                links[name] = channel(shard.address)
                stack.push_async_callback(links[name].close, None)
                sites.append(Site(name, shard, Watcher(links[name]), Story(page)))
            clusters = tuple(
                Cluster(
                    demand,
                    PlacingOperator(
                        demand.name, links[demand.shard], capabilities=STAYING, drain_seconds=DRAIN_SECONDS
                    ),
                )
                for demand in four_clusters()
            )
            scene = cls(provider, coordinator, Sites(tuple(sites)), clusters)
            stack.push_async_callback(scene._end)
            parts: list[CoordinatorProcess | ShardProcess] = [coordinator, *(site.shard for site in sites)]
            for part in parts:
                stop = asyncio.Event()
                stack.push_async_callback(_stopped, stop, scene._start(part.serve(stop)))
            scene._start(scene._begin())
            yield scene

    async def _begin(self) -> None:
        """Give every shard its zones; clusters come once each acts on exactly what is its own."""
        zones = Counter(each.shape.zone for each in self.provider.process.runtime.core.machines.values())
        wanted = dict.fromkeys((site.name for site in self.sites.all), 0)
        for zone, machines in zones.items():
            wanted[_owner(zone)] += machines
        async with channel(self.coordinator.address) as opened:
            stub: Any = coordinator_pb2_grpc.CoordinatorStub(opened)
            while wanted.keys() != (await _owning(stub)).keys():
                await asyncio.sleep(POLL_SECONDS)
            for zone in zones:
                await stub.MoveDomain(
                    coordinator_pb2.MoveDomainRequest(
                        topology_key=ZONE_LABEL, topology_value=zone, to_shard_id=_owner(zone)
                    )
                )
            while wanted != await _owning(stub):
                await asyncio.sleep(POLL_SECONDS)
        self.sites.begin()
        await asyncio.gather(*(cluster.run() for cluster in self.clusters.values()))

    # ------------------------------------------------------------------------------------------------------- watching

    async def look(self) -> Sight:
        """One look at the shards; raises what broke, if a part did."""
        try:
            sight = await self.sites.look()
        except grpc.RpcError:
            if not self.sites.begun:
                # Not all of them listen yet.
                self._raise_what_broke()
                return self.sight
            # Most likely the shard is going down, and will say why.
            await asyncio.wait(self._parts, timeout=STOP_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            self._raise_what_broke()
            raise
        self._raise_what_broke()
        self._last_seen.update(sight.by_id)
        return sight

    @property
    def sight(self) -> Sight:
        """What the last look saw."""
        return self.sites.sight

    @property
    def lines(self) -> list[Line]:
        """The story, newest first."""
        return self.sites.lines

    @property
    def met(self) -> bool:
        """The last decision was about what the clusters want now, and all of it is there, in zones that are up."""
        sight = self.sight
        heard = all(sight.wanted(name) == each.demand.wanted for name, each in self.clusters.items())
        return heard and self.sites.met and not any(sight.serving(zone=zone) for zone in self.down)

    @property
    def complete(self) -> bool:
        """Every machine there was at the start is there."""
        return len(self.sight.machines) == self._size

    def moment(self) -> Moment:
        """What there is to see after the last look."""
        return Moment(
            now=time.time_ns(),
            sight=self.sight,
            met=self.met,
            clusters=tuple(
                ClusterMoment(
                    cluster.name,
                    cluster.operator.connected.is_set(),
                    tuple(cluster.demand.pods.items()),
                    "" if cluster.demand.shard == MAIN else cluster.demand.shard,
                )
                for cluster in self.clusters.values()
            ),
            lines=tuple(self.lines),
            down=tuple(sorted(self.down)),
            gone=tuple(each for each in self._last_seen.values() if each.id not in self.sight.by_id),
            resetting=self.resetting,
            shards=tuple((site.name, site.shard.address) for site in self.sites.all),
            metrics=f"127.0.0.1:{self.sites.all[0].shard.http.port}",
            coordinator=self.coordinator.address,
        )

    # ------------------------------------------------------------------------------------------- what the audience does

    async def burst(self, name: str) -> None:
        """A wave of work in one cluster."""
        cluster = self.clusters[name]
        self._say(f"{name} bursts: {cluster.demand.burst()} more pods")
        await cluster.heard()

    async def critical(self) -> None:
        """A job that goes before everything else, in our own halls only."""
        cluster = self.clusters["payments"]
        cluster.demand.more(SETTLEMENT, CRITICAL_PODS)
        self._say(f"payments sends a critical job of {CRITICAL_PODS} pods that must run in our own halls")
        await cluster.heard()

    async def fail_zone(self) -> str:
        """The busiest cloud zone that is up goes down: its hosts break and nothing can be bought there."""
        standing = [zone for zone in CLOUD_ZONES if zone not in self.down]
        if not standing:
            self._say("every cloud zone is down already", good=False)
            return ""
        zone = max(standing, key=lambda each: len(self.sight.serving(zone=each)))
        lost = sum(bool(machine.cluster) for machine in self.sight.machines if machine.zone == zone)
        self.provider.provider.execute(CloseZone(zone))
        self.down.add(zone)
        self._say(f"{zone} fails: {lost} machines in use are gone, and nothing can be bought there", good=False)
        return zone

    async def repair_zones(self) -> None:
        """Zones that are down come back."""
        if self.down:
            self._say(f"{listed(self.down)} {'is' if len(self.down) == 1 else 'are'} back")
        self._open_zones()

    async def drain(self) -> None:
        """Bursts and jobs end; where there are none, the clusters want nothing at all."""
        resting = all(cluster.demand.resting for cluster in self.clusters.values())
        for cluster in self.clusters.values():
            if resting:
                cluster.demand.nothing()
            else:
                cluster.demand.rest()
        self._say("all work ends" if resting else "bursts and jobs end: back to an ordinary day")
        await self._all_heard()

    async def reset(self) -> None:
        """The start again: every zone up, everything given back, then an ordinary day from scratch. Needs a looker."""
        if self.resetting:
            return
        self.resetting = True
        try:
            self.sites.forget()
            self._say("from the start: all work ends, every zone is up, then an ordinary day begins")
            self._open_zones()
            for cluster in self.clusters.values():
                cluster.demand.nothing()
            await self._all_heard()
            async with asyncio.timeout(RESET_SECONDS):
                while not (self.complete and self.sight.at_rest):
                    await asyncio.sleep(POLL_SECONDS)
            for cluster in self.clusters.values():
                cluster.demand.rest()
            await self._all_heard()
        finally:
            self.resetting = False

    def _open_zones(self) -> None:
        for zone in sorted(self.down):
            self.provider.provider.execute(OpenZone(zone))
        self.down.clear()

    async def _all_heard(self) -> None:
        async with asyncio.TaskGroup() as waiting:
            for cluster in self.clusters.values():
                waiting.create_task(cluster.heard())

    def _say(self, text: str, *, good: bool = True) -> None:
        self.sites.say(text, good=good)

    def _raise_what_broke(self) -> None:
        for part in self._parts:
            if part.done() and not part.cancelled():
                part.result()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._parts.append(task)
        return task

    async def _end(self) -> None:
        for part in self._parts:
            part.cancel()
        await asyncio.gather(*self._parts, return_exceptions=True)


def _owner(zone: str) -> str:
    return EDGE if zone == EDGE_ZONE else MAIN


async def _owning(stub: Any) -> dict[str, int]:
    """How many machines each shard says are its own; empty while nobody leads yet."""
    try:
        answer = await stub.ListShardReports(coordinator_pb2.ListShardReportsRequest())
    except grpc.aio.AioRpcError:
        return {}
    return {each.shard_id: each.summary.total_machines for each in answer.reports}


async def _stopped(stop: asyncio.Event, serving: asyncio.Task[None]) -> None:
    stop.set()
    with contextlib.suppress(asyncio.CancelledError):
        await serving
