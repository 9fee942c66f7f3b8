"""The demonstration's parts and what the audience can do to them.

Real parts, all in this process but each behind its own socket on loopback: a shard, a provider of machines that do not
exist, and three clusters that exist only as their operators. Nothing here decides who gets which machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import grpc

from bigfleet.demo.narrate import Story, listed
from bigfleet.demo.view import ClusterMoment, Moment
from bigfleet.demo.watching import SeenMachine, Sight, Watcher
from bigfleet.demo.workloads import CRITICAL_PODS, SETTLEMENT, ClusterDemand, three_clusters
from bigfleet.provider.fake.catalogue import LATENCIES, Catalogue, parse_catalogue
from bigfleet.provider.fake.commands import CloseZone, OpenZone
from bigfleet.provider.fake.process import FakeProcess, FakeSettings
from bigfleet.shard.process import ShardProcess
from bigfleet.shard.rehearsal.synthetic import SyntheticOperator
from bigfleet.shard.settings import settings_from
from bigfleet.transport import channel

# Waits a person would have to sit through are short; everything else is as in production.
SETTINGS: Mapping[str, object] = {
    "id": "demo",
    "listen": "127.0.0.1:0",
    "metrics-addr": "127.0.0.1:0",
    "cycle-interval": "1s",
    "early-cycle-interval": "200ms",
    "reconcile-interval": "500ms",
    "reclaim-hold": "2s",
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
}
# For those who do not watch.
QUICK_SETTINGS: Mapping[str, object] = {
    **SETTINGS,
    "reclaim-hold": "500ms",
    "idle-hold-on-demand": "1s",
    "idle-hold-spot": "1s",
}
DRAIN_SECONDS = 0.6
ROLLUP_SECONDS = 10.0
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

    def __init__(self, demand: ClusterDemand, operator: SyntheticOperator) -> None:
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

    def __init__(self, provider: FakeProcess, shard: ShardProcess, clusters: tuple[Cluster, ...], watcher: Watcher):
        self.provider = provider
        self.shard = shard
        self.clusters = {cluster.name: cluster for cluster in clusters}
        self.story = Story()
        self.sight = Sight()
        self.down: set[str] = set()
        self.resetting = False
        self._size = provider.provider.cloud.catalogue.size
        self._last_seen: dict[str, SeenMachine] = {}
        self._loss_seen_in = -1
        self._watcher = watcher
        self._parts: list[asyncio.Task[None]] = []

    @classmethod
    @asynccontextmanager
    async def opened(
        cls, directory: Path, catalogue: Catalogue, settings: Mapping[str, object] = SETTINGS
    ) -> AsyncIterator[Scene]:
        """All parts running; ended in order at the end of the block. `directory` gets journal and audit log."""
        async with AsyncExitStack() as stack:
            provider = FakeProcess(FakeSettings("127.0.0.1:0", catalogue))
            await provider.start()
            stack.push_async_callback(provider.stop)
            process, config = settings_from(
                {
                    **settings,
                    "provider": [f"demo={provider.address}"],
                    "data-dir": str(directory),
                    "audit-log": str(directory / "audit.jsonl"),
                }
            )
            shard = await stack.enter_async_context(ShardProcess.opened(process, config))
            link = channel(shard.address)
            stack.push_async_callback(link.close, None)
            clusters = tuple(
                Cluster(demand, SyntheticOperator(demand.name, link, drain_seconds=DRAIN_SECONDS))
                for demand in three_clusters()
            )
            scene = cls(provider, shard, clusters, Watcher(link))
            stack.push_async_callback(scene._end)
            stop = asyncio.Event()
            serving = scene._start(shard.serve(stop))
            stack.push_async_callback(_stopped, stop, serving)
            for cluster in clusters:
                scene._start(cluster.run())
            yield scene

    # ------------------------------------------------------------------------------------------------------- watching

    async def look(self) -> Sight:
        """One look at the shard; raises what broke, if a part did."""
        before = self.sight
        try:
            self.sight = await self._watcher.look()
        except grpc.RpcError:
            # Most likely the shard is going down, and will say why.
            await asyncio.wait(self._parts, timeout=STOP_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            self._raise_what_broke()
            raise
        self._raise_what_broke()
        if any(each.id not in self.sight.by_id for each in before.serving()):
            self._loss_seen_in = self.sight.cycle
        self._last_seen.update(self.sight.by_id)
        self.story.follow(self.sight)
        return self.sight

    @property
    def met(self) -> bool:
        """The last decision was about what the clusters want now, and all of it is there, in zones that are up."""
        sight = self.sight
        heard = all(sight.wanted(name) == each.demand.wanted for name, each in self.clusters.items())
        # A decision that is older than a loss says nothing about it.
        noticed = sight.cycle > self._loss_seen_in and not any(sight.serving(zone=zone) for zone in self.down)
        return heard and noticed and sight.met

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
                ClusterMoment(cluster.name, cluster.operator.connected.is_set(), tuple(cluster.demand.pods.items()))
                for cluster in self.clusters.values()
            ),
            lines=tuple(self.story.lines),
            down=tuple(sorted(self.down)),
            gone=tuple(each for each in self._last_seen.values() if each.id not in self.sight.by_id),
            resetting=self.resetting,
            address=self.shard.address,
            metrics=f"127.0.0.1:{self.shard.http.port}",
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
            self.story.forget()
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
        self.story.say(time.time_ns(), text, good=good)

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


async def _stopped(stop: asyncio.Event, serving: asyncio.Task[None]) -> None:
    stop.set()
    with contextlib.suppress(asyncio.CancelledError):
        await serving
