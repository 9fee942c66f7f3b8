"""The first start of `bigfleet shard` on a machine, with nothing compiled: nobody waits without being told for what.

Compiling everything takes minutes of a processor, so every shard here is stopped long before that is done.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from bigfleet.transport import channel
from bigfleet.wire import shardread_pb2, shardread_pb2_grpc
from tests.strategies.operator_client import Row, operator
from tools.processes import BIGFLEET, INTERRUPTIBLE, LocalFleet, Program, free_address

UNIT = {"cpu": "2", "memory": "4Gi"}
WAITING = re.compile(r"kernels are being compiled, (\d+) of (\d+) are done after (\d+) s; (\d+) machines are too many")
# A shard whose compiling process ends at once with a complaint.
BROKEN = """
import sys
from bigfleet.shard.runtime import kernel_start
kernel_start.COMPILER = (sys.executable, "-c", "import sys; sys.exit('no room for a compiler')")
from bigfleet.cli.bigfleet import main
main()
"""

# How many kernels there are once a shard is put together, and how many of them it has compiled for that.
PUT_TOGETHER = """
import asyncio, sys
from bigfleet.engine.kernels import jit
from bigfleet.shard.process import ShardProcess
from bigfleet.shard.settings import settings_from

async def main():
    given = {"fake-provider": True, "listen": "127.0.0.1:0", "metrics-addr": "0", "data-dir": sys.argv[1]}
    async with ShardProcess.opened(*settings_from(given)):
        print(jit.kernel_count(), sum(each._entry is not None for each in jit._KERNELS))

asyncio.run(main())
"""


class Shard(Program):
    """`bigfleet shard` over a pretend fleet, with a kernel cache of its own."""

    def __init__(self, folder: Path, machines: int, program: tuple[str, ...] = BIGFLEET) -> None:
        self.address, self.http = free_address(), free_address()
        arguments = [
            *("shard", "--fake-provider", "--seed-machines", str(machines), "--log-format", "json"),
            *("--listen", self.address, "--metrics-addr", self.http, "--data-dir", str(folder / "data")),
            *("--cycle-interval", "500ms", "--early-cycle-interval", "50ms", "--shutdown-grace", "2s"),
        ]
        super().__init__("shard", [*program, *arguments], folder, {"BIGFLEET_KERNEL_CACHE": str(folder / "cache")})

    page = LocalFleet.page

    async def until(self, met: Callable[[], Any], seconds: float = 180.0) -> Any:
        async with asyncio.timeout(seconds):
            while True:
                assert self.alive, self.tail()
                if found := met():
                    return found
                await asyncio.sleep(0.05)

    def said(self, message: str) -> list[dict[str, Any]]:
        return list(self.lines(message))

    def compilers(self) -> list[int]:
        """Processes this one has started and that still run."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return [int(pid) for pid in children.read_text().split()]


@asynccontextmanager
async def started(folder: Path, machines: int, program: tuple[str, ...] = BIGFLEET) -> AsyncIterator[Shard]:
    shard = Shard(folder, machines, program)
    shard.start()
    try:
        yield shard
    finally:
        if shard.alive:
            shard.kill()


@asynccontextmanager
async def reader(shard: Shard) -> AsyncIterator[shardread_pb2_grpc.ShardReadAsyncStub]:
    async with channel(shard.address) as link:
        yield shardread_pb2_grpc.ShardReadStub(link)


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet has."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


async def ended(pids: list[int], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not all(map(gone, pids)):
            await asyncio.sleep(0.05)


def test_putting_a_shard_together_compiles_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PUT_TOGETHER, str(tmp_path / "data")]
    environment = {**os.environ, "BIGFLEET_KERNEL_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    kernels, compiled = map(int, done.stdout.splitlines()[-1].split())
    assert kernels > 10 and compiled == 0


async def test_a_small_fleet_is_served_while_another_process_compiles_and_a_stop_ends_both(tmp_path: Path) -> None:
    async with started(tmp_path, 2000) as shard, reader(shard) as read:
        await shard.until(lambda: shard.page("/readyz")[0] == 200)
        async with operator(shard.address, "c-1") as cluster:
            cluster.want([Row(pods=3, unit=UNIT, priority=100)])
            await cluster.send_rollup()
            await cluster.until(lambda heard: len(heard.configured) == 3, 120)
            pages = [page async for page in read.InspectNeeds(shardread_pb2.InspectNeedsRequest(), timeout=60)]
            explained = await read.Explain(shardread_pb2.ExplainRequest(cluster_id="c-1"), timeout=120)
            assert [page.need.need.priority for page in pages[1:]] == [100]
            assert explained.total_matching == 1 and explained.explanations[0].granted
        assert not shard.said("engine warm"), "everything was compiled before the first binding: nothing was shown"
        compilers = shard.compilers()
        assert len(compilers) == 1
        (begun,) = shard.said("compiling kernels, once per host and version")
        assert begun["cache"].startswith(str(tmp_path / "cache"))
        assert shard.stop() == 0
        await ended(compilers)
    assert "Warning" not in shard.log.read_text()


async def test_a_killed_shard_leaves_no_compiling_process(tmp_path: Path) -> None:
    async with started(tmp_path, 1) as shard:
        compilers = await shard.until(lambda: shard.said("compiling kernels") and shard.compilers())
        shard.kill()
        await ended(compilers)


async def test_a_larger_fleet_says_everywhere_what_it_waits_for(tmp_path: Path) -> None:
    async with started(tmp_path, 2001) as shard, reader(shard) as read:
        # The List counts machines before it is complete: then kernels are all that is missing.
        status, body = await shard.until(lambda: (page := shard.page("/readyz"))[1].startswith("the engine's") and page)
        assert status == 503 and body.count("\n") == 1
        _, total, _, machines = map(int, WAITING.search(body).groups())  # type: ignore[union-attr]
        assert total > 10 and machines == 2001
        for call in (
            read.Explain(shardread_pb2.ExplainRequest(), timeout=60),
            read.InspectNeeds(shardread_pb2.InspectNeedsRequest(), timeout=60).read(),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            assert WAITING.search(refused.value.details() or "") and "bigfleet warm" in (refused.value.details() or "")
        # What needs no decision is answered.
        pages = [page async for page in read.ListMachines(shardread_pb2.ListMachinesRequest(limit=5), timeout=60)]
        assert sum(len(page.machines) for page in pages) == 5
        told = await shard.until(lambda: shard.said("waiting for kernels to be compiled"))
        assert told[0]["total"] == total and told[0]["machines"] == 2001
        # Progress is real: later it is further, in the same words.
        await shard.until(lambda: int((WAITING.search(shard.page("/readyz")[1]) or [0, -1])[1]) >= 1)
        assert shard.stop() == 0


async def test_a_failed_compiling_process_is_told_once_and_the_shard_goes_on(tmp_path: Path) -> None:
    async with started(tmp_path, 4, (sys.executable, "-c", BROKEN)) as shard:
        await shard.until(lambda: shard.page("/readyz")[0] == 200)
        await shard.until(lambda: shard.said("the compiling process failed"))
        async with operator(shard.address, "c-1") as cluster:
            cluster.want([Row(pods=2, unit=UNIT, priority=100)])
            await cluster.send_rollup()
            await cluster.until(lambda heard: len(heard.configured) == 2, 120)
        # It compiles by itself: progress goes on although nobody else makes any.
        await shard.until(lambda: any(line.get("done", 0) >= 1 for line in shard.said("compiling kernels")))
        (complaint,) = shard.said("the compiling process failed")
        assert complaint["code"] == 1 and complaint["err"] == "no room for a compiler"
        assert shard.compilers() == []
        assert shard.stop() == 0


def test_warm_without_a_place_says_what_to_set(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    wanted = str(tmp_path / "file" / "inside")
    environment = {**os.environ, "BIGFLEET_KERNEL_CACHE": wanted}
    done = subprocess.run([*BIGFLEET, "warm"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert wanted in done.stderr and "BIGFLEET_KERNEL_CACHE" in done.stderr and "Traceback" not in done.stderr


def test_warm_tells_its_progress_and_can_be_interrupted(tmp_path: Path) -> None:
    environment = {**os.environ, "BIGFLEET_KERNEL_CACHE": str(tmp_path)}
    running = subprocess.Popen([*INTERRUPTIBLE, *BIGFLEET, "warm"], env=environment, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    try:
        until = time.monotonic() + 180
        for line in running.stderr:
            assert time.monotonic() < until
            if re.fullmatch(r"[1-9]\d* of \d+ kernels after \d+ s\n", line):
                break
        else:
            raise AssertionError("warm ended without a word")
        assert list(tmp_path.rglob("*.nbc")), "nothing has been kept yet"
        running.send_signal(signal.SIGINT)
        assert running.wait(60) != 0
    finally:
        running.kill()
        running.wait()


def test_warm_with_everything_there_says_where_it_is() -> None:
    done = subprocess.run([*BIGFLEET, "warm", "-o", "json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["kernels"] > 10 and Path(told["cache"]).is_dir() and told["bytes"] > 100_000
    again = subprocess.run([*BIGFLEET, "warm", "-o", "json"], capture_output=True, text=True, check=True)
    assert json.loads(again.stdout)["compiled"] is False
