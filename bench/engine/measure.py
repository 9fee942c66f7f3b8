"""Runs a shape: warm-up, calibration, timed cycles, phases, memory. The only engine benchmark module with a clock."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import resource
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from bench._report import calibrate, machine_facts
from bench.engine.workload import CLOSED, OPEN, ShapeSpec, Workload
from bigfleet.engine import Engine

START = 1_700_000_000_000_000_000
CYCLE = 10_000_000_000


def run(spec: ShapeSpec, cycles: int, seconds: float, *, ticker: bool = False) -> dict[str, object]:
    """The report of one shape; every figure in it was measured in this process."""
    engine = Engine()
    _say("warming kernels ...")
    engine.warm(lambda done, total: _say(f"  kernel {done} of {total}"))
    _say(f"building {spec.name} ...")
    workload = spec.build()
    _release_memory()
    empty_mb = _rss_mb()
    steps = _Steps(engine, workload)
    _say("loading and settling ...")
    steps.settle(spec.settle)
    loaded_mb = _rss_mb()
    _say(f"timing up to {cycles} cycles or {seconds:.0f} s ...")
    late_ms = None
    if ticker:
        late_ms = asyncio.run(_beside_a_ticker(steps, cycles, seconds))
    else:
        steps.time(cycles, seconds)
    samples = np.array(steps.samples) * 1000
    machines = int(str(workload.facts.get("machines", 0)))
    report: dict[str, object] = {
        "shape": spec.name,
        "about": spec.about,
        "workload": workload.facts,
        "cycles": len(samples),
        "p50_ms": round(float(np.percentile(samples, 50)), 3),
        "p99_ms": round(float(np.percentile(samples, 99)), 3),
        "max_ms": round(float(samples.max()), 3),
        "limit_ms": spec.limit_ms,
        "published": spec.published,
        "phases_ms": {name: round(float(np.median(values)) * 1000, 3) for name, values in steps.phases.items()},
        "actions_per_cycle": round(steps.actions / max(1, len(samples)), 1),
        "rss_mb": round(loaded_mb, 1),
        "rss_bytes_per_machine": round((loaded_mb - empty_mb) * 1e6 / machines, 1) if machines else None,
        "calibration_ms": round(calibrate(), 3),
        "machine": machine_facts(),
    }
    if late_ms is not None:
        report["ticker_max_late_ms"] = round(late_ms, 3)
    if steps.complaints:
        report["complaints"] = sorted(steps.complaints)
    return report


class _Steps:
    """Drives one engine through a workload and keeps the samples."""

    def __init__(self, engine: Engine, workload: Workload) -> None:
        self.engine = engine
        self.workload = workload
        self.now = START
        self.samples: list[float] = []
        self.phases: dict[str, list[float]] = defaultdict(list)
        self.actions = 0
        self.complaints: set[str] = set()
        self._feeds = workload.feeds()

    def settle(self, cycles: int) -> None:
        work = self.workload
        result = self.engine.step(work.load(), work.demand, work.policy, self.now, CLOSED if work.reset else OPEN)
        if result.rejected:
            raise SystemExit(f"the engine rejected part of the workload: {result.rejected}")
        work.tell(result)
        for _ in range(cycles):
            self._cycle(keep=False)
        _release_memory()
        # As the shard does once it is up: what was loaded is not garbage and need not be looked at again.
        gc.freeze()

    def time(self, cycles: int, seconds: float) -> None:
        spent = 0.0
        while len(self.samples) < cycles and spent < seconds:
            spent += self._cycle(keep=True)

    def _cycle(self, *, keep: bool) -> float:
        work = self.workload
        if work.reset:
            self.now += CYCLE
            self.engine.step(None, None, work.policy, self.now, CLOSED)
        if work.fresh:
            self.engine = Engine()
            # The engine before it is garbage that a first step does not meet.
            gc.collect()
            self.engine.step(work.load(), None, work.policy, self.now, OPEN)
        feed = next(self._feeds)
        self.now += CYCLE
        marks: list[tuple[str, float]] = []
        begin = time.perf_counter()
        result = self.engine.step(
            feed.machines,
            feed.demand,
            work.policy,
            self.now,
            feed.conditions,
            lambda name: marks.append((name, time.perf_counter())),
        )
        took = time.perf_counter() - begin
        if keep:
            self.samples.append(took)
            last = begin
            for name, at in marks:
                self.phases[name].append(at - last)
                last = at
            self.actions += len(result.actions)
            complaint = work.check(result)
            if complaint:
                self.complaints.add(complaint)
        work.tell(result)
        return took


async def _beside_a_ticker(steps: _Steps, cycles: int, seconds: float) -> float:
    """Worst lateness in milliseconds of a 5 ms asyncio ticker while steps run in a thread of this process."""
    worst = 0.0
    done = False

    async def tick() -> None:
        nonlocal worst
        while not done:
            due = time.perf_counter() + 0.005
            await asyncio.sleep(0.005)
            worst = max(worst, time.perf_counter() - due)

    task = asyncio.create_task(tick())
    await asyncio.to_thread(steps.time, cycles, seconds)
    done = True
    await task
    return worst * 1000


def _release_memory() -> None:
    """Gives freed pages back, so that what remains resident is what is in use."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def _rss_mb() -> float:
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
