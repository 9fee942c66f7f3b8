"""The first start on a machine: a shard with an empty kernel cache, small and large, and `make run` from a fresh clone.

    python -m bench start [--only small,large,make] [--json docs/evidence/first-start.json]

Everything begins with nothing compiled and nothing installed. Readers ask twice a second from the first moment on: what
counts is what they get, and how soon. The load of the machine stands beside the figures; they are wall times.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc

from bench._report import conclude
from bench._samples import spread
from bigfleet.shard.rehearsal.synthetic import Row, SyntheticOperator
from bigfleet.transport import channel
from bigfleet.wire import shardread_pb2, shardread_pb2_grpc
from tools.processes import BIGFLEET, LocalFleet, Program, free_address

ROOT = Path(__file__).parents[1]
PARTS = ("small", "large", "make")
SMALL, LARGE = 2000, 20_000
UNIT = {"cpu": "2", "memory": "4Gi"}
WANTED = 20
# Ready within the 15 s, the demo within a minute of pip's work, and no reader left without an answer.
LIMITS = {"small_ready_seconds": 15.0, "small_reads_unanswered": 0, "large_reads_unanswered": 0}
MAKE_LIMITS = {"make_demo_seconds_after_pip": 60.0, "make_exit_code": 0}
_READ_SECONDS = 10.0
_PATIENCE = 1800.0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench start", description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts to measure ({','.join(PARTS)})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the report here")
    chosen = parser.parse_args(argv)
    parts = chosen.only.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--only has {sorted(unknown)[0]!r}; {', '.join(PARTS)} are accepted")
    return run(parts, chosen.json)


def run(parts: Sequence[str], path: Path | None) -> int:
    load_before = os.getloadavg()[0]
    figures: dict[str, Any] = {}
    if "small" in parts:
        _say(f"{SMALL} machines with an empty cache ...")
        figures |= asyncio.run(first_start("small", SMALL))
    if "large" in parts:
        _say(f"{LARGE} machines with an empty cache ...")
        figures |= asyncio.run(first_start("large", LARGE))
    if "make" in parts:
        _say("make run in a fresh clone ...")
        figures |= from_a_clone()
    figures["load_average_after"] = round(os.getloadavg()[0], 1)
    limits = {name: limit for name, limit in {**LIMITS, **MAKE_LIMITS}.items() if name in figures}
    return conclude(figures, limits, path, load_before)


async def first_start(name: str, machines: int) -> dict[str, Any]:
    """A shard from its start to compiled kernels, with a cluster and a reader."""
    with tempfile.TemporaryDirectory(prefix="bigfleet-start-") as folder:
        shard = _Shard(Path(folder), machines)
        shard.start()
        reads = _Reads(shard)
        reading = asyncio.create_task(reads.go_on())
        try:
            ready = await shard.until(lambda: shard.page("/readyz")[0] == 200)
            worked = shard.processor_seconds()
            bound = await _bound(shard)
            switched = await shard.until(lambda: list(shard.lines("engine warm")))
            later = await _bound(shard, "after-the-switch")
            reading.cancel()
            cycles = [line for line in shard.lines("cycle") if line["msg"] == "cycle"]
            (warm,) = shard.lines("engine warm")
            figures = {
                "machines": machines,
                "ready_seconds": ready,
                # What the shard itself had computed by then: on a busy machine the honest half of a wall time.
                "ready_cpu_seconds": round(worked, 2),
                "first_binding_seconds": bound,
                "switch_seconds": switched,
                "binding_after_switch_seconds": round(later - switched, 2),
                "reads_before_switch": reads.figures(),
                "reads_unanswered": reads.unanswered,
                "cycle_ms_before_switch": spread([1000 * each["seconds"] for each in cycles if _before(each, warm)]),
                "cycle_ms_after_switch": spread([1000 * each["seconds"] for each in cycles if not _before(each, warm)]),
                "said_by_readyz": _first_and_last(shard.not_ready),
                "said_to_readers": _first_and_last(reads.said),
                "said_in_the_log": _first_and_last([_line(each) for each in shard.lines("kernels")]),
            }
        finally:
            reading.cancel()
            shard.stop()
        shard.start()
        figures["ready_seconds_with_full_cache"] = await shard.until(lambda: shard.page("/readyz")[0] == 200)
        shard.stop()
    return {f"{name}_{key}": value for key, value in figures.items()}


class _Shard(Program):
    """`bigfleet shard` over a pretend fleet, with a cache of its own."""

    def __init__(self, folder: Path, machines: int) -> None:
        self.address, self.http = free_address(), free_address()
        self.not_ready: list[str] = []
        self._started = 0.0
        arguments = [
            *("shard", "--fake-provider", "--seed-machines", str(machines), "--data-dir", str(folder / "data")),
            *("--listen", self.address, "--metrics-addr", self.http, "--log-format", "json", "--log-level", "debug"),
        ]
        super().__init__("shard", [*BIGFLEET, *arguments], folder, {"BIGFLEET_KERNEL_CACHE": str(folder / "cache")})

    def start(self) -> None:
        super().start()
        self._started = time.monotonic()

    def page(self, path: str) -> tuple[int, str]:
        status, body = LocalFleet.page(self, path)  # type: ignore[arg-type]
        if status == 503:
            self.not_ready.append(body.strip())
        return status, body

    async def until(self, met: Any) -> float:
        """Seconds from the start until then."""
        while not await asyncio.to_thread(met):
            if not self.alive:
                raise RuntimeError(f"the shard ended: {self.tail()}")
            if self.seconds > _PATIENCE:
                raise RuntimeError(f"not within {_PATIENCE:g} s: {self.tail()}")
            await asyncio.sleep(0.05)
        return self.seconds

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self._started, 2)


class _Reads:
    """A reader that asks for needs twice a second, and what it got until kernels were compiled."""

    def __init__(self, shard: _Shard) -> None:
        self._shard = shard
        self._seconds: list[float] = []
        self._codes: Counter[str] = Counter()
        self.said: list[str] = []

    async def go_on(self) -> None:
        while not list(self._shard.lines("listening")):
            await asyncio.sleep(0.05)
        async with channel(self._shard.address) as link:
            stub = shardread_pb2_grpc.ShardReadStub(link)
            while not list(self._shard.lines("engine warm")):
                began = time.monotonic()
                try:
                    await stub.InspectNeeds(shardread_pb2.InspectNeedsRequest(), timeout=_READ_SECONDS).read()
                    self._codes["OK"] += 1
                except grpc.aio.AioRpcError as error:
                    self._codes[error.code().name] += 1
                    self.said.append(error.details() or "")
                self._seconds.append(1000 * (time.monotonic() - began))
                await asyncio.sleep(0.5)

    @property
    def unanswered(self) -> int:
        return self._codes["DEADLINE_EXCEEDED"]

    def figures(self) -> dict[str, Any]:
        return {"answers": dict(self._codes), "milliseconds": spread(self._seconds)}


async def _bound(shard: _Shard, cluster: str = "first") -> float:
    """Seconds from the shard's start until a cluster that asks now has its first machine."""
    async with AsyncExitStack() as stack:
        link = await stack.enter_async_context(channel(shard.address))
        operator = SyntheticOperator(cluster, link)
        stack.push_async_callback(operator.close)
        await operator.connect()
        operator.want([Row(pods=WANTED, unit=UNIT, priority=100)])
        await operator.send_rollup()
        await operator.until(lambda heard: len(heard.configured) >= 1, _PATIENCE)
        return shard.seconds


def from_a_clone() -> dict[str, Any]:
    """`make run` without a terminal, pip's work apart from the rest."""
    with tempfile.TemporaryDirectory(prefix="bigfleet-clone-") as folder:
        clone = Path(folder) / "bigfleet"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        # A newcomer has no environment of ours.
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        began = time.monotonic()
        running = subprocess.Popen(
            ["make", "run"],
            cwd=clone,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
        )
        assert running.stdout is not None
        said: list[tuple[float, str]] = []
        for line in running.stdout:
            said.append((time.monotonic() - began, line.rstrip()))
        code = running.wait()
        total = time.monotonic() - began
    pip = next((at for at, line in said if line.startswith("Successfully installed")), 0.0)
    demo = next((at for at, line in said if line.startswith("BigFleet demo")), total)
    met = next((at for at, line in said if ": met in " in line), total)
    silence = max((after - before for (before, _), (after, _) in pairwise(said)), default=0.0)
    return {
        "make_exit_code": code,
        "make_pip_seconds": round(pip, 1),
        "make_demo_seconds_after_pip": round(demo - pip, 1),
        "make_first_demand_met_seconds_after_pip": round(met - pip, 1),
        "make_total_seconds": round(total, 1),
        "make_longest_silence_seconds": round(silence, 1),
        "make_last_lines": [line for _, line in said[-2:]],
    }


def _before(cycle: dict[str, Any], warm: dict[str, Any]) -> bool:
    return str(cycle["time"]) < str(warm["time"])


def _first_and_last(said: list[str]) -> list[str]:
    return [said[0], said[-1]] if len(said) > 1 else said


def _line(entry: dict[str, Any]) -> str:
    shown = ("done", "total", "seconds", "machines", "kernels", "meanwhile")
    return " ".join([entry["msg"], *(f"{name}={entry[name]}" for name in shown if name in entry)])


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
