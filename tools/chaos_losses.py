"""The worst of chaos: machines nobody can see, stock-outs, a lost data directory, poison, an expired certificate, a
full disk. Each says what must hold while it lasts; that all is well again afterwards is for the calm that follows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import yaml

from bigfleet.shard.rehearsal.synthetic import SyntheticOperator
from bigfleet.transport.authority import create_authority, issue
from bigfleet.transport.identity import Identity
from bigfleet.wire import capacity_pb2, shard_pb2
from tools.processes import BIGFLEET, Program, free_address, page_of

if TYPE_CHECKING:
    from tools.chaos import Chaos

SECONDS = 30.0
START_SECONDS = 300.0
REJECTED = shard_pb2.Acknowledgement.OUTCOME_REJECTED


async def hide_machines(chaos: Chaos) -> None:
    """An eventually consistent cloud: what it sold cannot be found for a while."""
    await asyncio.to_thread(chaos.fleet.wait_ready)
    chaos.meddler.hidden_seconds = chaos.dice.uniform(0.5, 3.0)
    before, until = chaos.meddler.times_hidden, time.monotonic() + SECONDS
    await chaos.swing_demand()
    while chaos.meddler.times_hidden == before and time.monotonic() < until:
        # Something must be bought: a host that is lost is.
        await chaos.lose_hosts()
        await asyncio.sleep(0.5)
    chaos.meddler.hidden_seconds = 0.0


async def sell_out(chaos: Chaos) -> None:
    """One kind cannot be bought, with or without the provider saying why."""
    chaos.meddler.sold_out = chaos.dice.choice(("steady", "swing"))
    chaos.meddler.says_why = chaos.dice.random() < 0.5
    await chaos.lose_hosts()
    await chaos.swing_demand()
    await asyncio.sleep(chaos.dice.uniform(0.5, 2.0))
    chaos.meddler.sold_out = ""


async def lose_data_directory(chaos: Chaos) -> None:
    """Journal and epoch are gone. Where the clock has run ahead before, a person says so with --min-epoch."""
    await asyncio.to_thread(chaos.fleet.shard.kill)
    # What nobody can see and nobody remembers cannot be known of.
    chaos.meddler.show_all()
    chaos.lose_data()
    epochs = [line["epoch"] for line in chaos.fleet.shard.lines("listening", every_life=True)]
    ahead = int(chaos.clock.read_text()) if chaos.clock.exists() else 0
    if max(epochs) >= time.time_ns() // 10**6 + ahead * 1000:
        path = chaos.folder / "shard.yaml"
        path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "min-epoch": max(epochs) + 1}))
    chaos.fleet.shard.start()


async def send_poison(chaos: Chaos) -> None:
    """A cluster of its own sends what would take all memory; it is refused with a sentence, and nobody else notices."""
    names = {f"example.com/device-{chaos.dice.random()}-{n}": "1" for n in range(5000)}
    many = [capacity_pb2.CapacityNeed(aggregate_resources={"cpu": "1"}, group=f"g{n}") for n in range(300)]
    long = capacity_pb2.CapacityNeed(aggregate_resources={"cpu": "1"}, min_unit={"cpu": "1"}, group="g" * 100_000)
    for needs in ([capacity_pb2.CapacityNeed(aggregate_resources=names, min_unit=names)], [*many, long]):
        if not await _refused(chaos, needs):
            chaos.problems.append("a poisonous roll-up was not refused")


async def _refused(chaos: Chaos, needs: list[capacity_pb2.CapacityNeed]) -> bool:
    """Whether the shard says no; asked again while it is being started."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        async with grpc.aio.insecure_channel(chaos.fleet.address) as channel:
            made = SyntheticOperator("poison", channel)
            try:
                await made.connect()
                made.want(needs)
                await made.send_rollup()
                await made.until(lambda heard: any(ack.outcome == REJECTED for ack in heard.acks), 5.0, "a refusal")
                return True
            except (grpc.RpcError, ConnectionError, TimeoutError):
                await asyncio.sleep(0.2)
            finally:
                await made.close()
    return False


async def fill_disk(chaos: Chaos) -> None:
    """The journal cannot be written: the shard ends with one sentence, and goes on where it was once there is room."""
    shard, disk = chaos.fleet.shard, chaos.disk
    if disk is None:
        chaos.skipped["full disk"] += 1
        return
    await asyncio.to_thread(chaos.fleet.wait_ready)
    disk.fill()
    try:
        # Something must be written down: a host that is lost is bought again.
        if not await _ends(shard, chaos.lose_hosts):
            chaos.problems.append("full disk: the shard went on without a journal")
        elif "make room" not in shard.tail() or "Traceback" in shard.tail():
            chaos.problems.append(f"full disk: no sentence that says so: {shard.tail(1000)}")
    finally:
        disk.free()
    if not shard.alive:
        shard.start()


async def _ends(program: Program, provoke: Callable[[], Any]) -> bool:
    until = time.monotonic() + SECONDS
    while program.alive and time.monotonic() < until:
        await provoke()
        await asyncio.sleep(0.5)
    return not program.alive


class GuardedShard:
    """A shard of its own that speaks TLS and owns nothing, for certificates to expire under."""

    def __init__(self, folder: Path, provider: str, environment: dict[str, str]) -> None:
        self._folder = folder / "guarded"
        create_authority(self._folder)
        self._issue(days=365)
        self._http = free_address()
        stem = self._folder / "guarded"
        settings = {
            "id": "guarded",
            "provider": [f"p1={provider}"],
            "ignore-provider": ["p1"],
            "domain": ["zone=nowhere"],
            "data-dir": str(self._folder / "data"),
            "listen": free_address(),
            "metrics-addr": self._http,
            "tls-cert": f"{stem}.crt",
            "tls-key": f"{stem}.key",
            "tls-ca": str(self._folder / "ca.crt"),
        }
        path = self._folder / "shard.yaml"
        path.write_text(yaml.safe_dump(settings))
        argv = [*BIGFLEET, "shard", "--log-format", "json", "--config", str(path)]
        self.program = Program("guarded", argv, folder, environment)

    def _issue(self, days: int) -> None:
        issue(self._folder, Identity.parse("bigfleet://shard/guarded"), days=days, force=True, file_name="guarded")

    async def wait_ready(self) -> None:
        assert await self._says(200, "", START_SECONDS), f"the guarded shard is not ready: {self.program.tail()}"
        # It decides before its kernels are loaded, which take 85 MiB: what it needs is measured from then on.
        await asyncio.to_thread(self.program.told, "engine warm", START_SECONDS)

    async def expire(self, problems: list[str]) -> None:
        """Nobody can connect: /readyz says why, /healthz stays well; a new certificate ends it."""
        self._issue(days=-1)
        if not await self._says(503, "expired"):
            problems.append(f"an expired certificate was not told of: {page_of(self._http, '/readyz')}")
        if page_of(self._http, "/healthz")[0] != 200:
            problems.append("an expired certificate made a process look dead")
        self._issue(days=365)
        if not await self._says(200, ""):
            problems.append(f"a new certificate did not help: {page_of(self._http, '/readyz')}")

    async def _says(self, status: int, word: str, seconds: float = SECONDS) -> bool:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            found, text = await asyncio.to_thread(page_of, self._http, "/readyz")
            if found == status and word in text:
                return True
            await asyncio.sleep(0.1)
        return False


async def expire_certificate(chaos: Chaos) -> None:
    await chaos.guarded.expire(chaos.problems)
