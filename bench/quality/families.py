"""The families of demand the judge replays: seeded generators, what may be bought for each, and the limits to hold.

Owns every random draw. A trace begins in its steady state: who would be running at second 0 arrives there with what is
left of its work. Rates follow the day where people cause them. Sizes lie on the grids people write in manifests.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from bench.quality.demand import NOBODY, Trace, TraceBuilder
from bench.quality.kinds import ON_DEMAND, UNLIMITED, Kinds, kinds

HOUR, DAY = 3600.0, 86400.0
SEEDS = (1, 2, 3)
Size = tuple[int, int, int]
Draw = Callable[[np.random.Generator], dict[str, object]]


@dataclass(frozen=True, slots=True)
class Limits:
    """The judge's row: static and replay dollars over their bounds, and the share of old pods it may evict."""

    static: float | None
    emptiest: float
    fullest: float
    stretch: float
    evicted: float = 0.05


@dataclass(frozen=True, slots=True)
class Family:
    """One row of the judge's table. `racks`: machines per rack where gangs need one, else 0."""

    name: str
    about: str
    build: Callable[[int], Trace]
    limits: Limits
    kinds: Kinds = field(default_factory=kinds)
    racks: int = 0
    shared_base: bool = False


def _gib(amount: float) -> int:
    return round(amount * 1024)


def _steady(
    trace: TraceBuilder,
    random: np.random.Generator,
    alive: float,
    mean_work: float,
    work: Callable[[], float],
    add: Callable[[float, float], None],
    swing: float = 0.0,
    phase: float = 0.0,
) -> None:
    """Poisson arrivals that keep about `alive` pods running, from a steady state at second 0 on."""
    at = -min(30 * mean_work, 20 * DAY)
    peak = alive / mean_work * (1 + swing)
    while at < trace.horizon:
        at += random.exponential(1 / peak)
        level = 1 + swing * math.sin(2 * math.pi * (at / DAY) + phase)
        if random.random() * (1 + swing) > level:
            continue
        length = work()
        if at >= 0:
            add(at, length)
        elif at + length > 0:
            add(0.0, at + length)


def _lognormal(random: np.random.Generator, median: float, sigma: float, least: float, most: float) -> float:
    return float(min(most, max(least, median * math.exp(sigma * random.standard_normal()))))


def _mean_lognormal(median: float, sigma: float, least: float, most: float) -> float:
    """Of the clipped draw, by sampling with a fixed seed."""
    sample = np.random.default_rng(0).standard_normal(20_000)
    return float(np.clip(median * np.exp(sigma * sample), least, most).mean())


def gpus(seed: int) -> Trace:
    """Whole GPUs: jobs of 1 to 8, hours to days, a few cores and tens of GiB for each GPU."""
    random = np.random.default_rng([seed, 11])
    trace = TraceBuilder("gpus", seed, 3 * DAY)
    shape = (10 * HOUR, 1.2, 0.5 * HOUR, 5 * DAY)

    def add(at: float, work: float) -> None:
        count = int(random.choice([1, 2, 3, 4, 5, 6, 8], p=[0.52, 0.16, 0.04, 0.14, 0.02, 0.02, 0.10]))
        # People ask for what their old machine had: some jobs want far more cores or memory than a GPU's share.
        cores = int(random.choice([2, 4, 8, 12, 16, 24], p=[0.15, 0.3, 0.25, 0.15, 0.1, 0.05])) * count
        memory = int(random.choice([8, 16, 32, 48, 64, 128], p=[0.15, 0.25, 0.3, 0.15, 0.1, 0.05])) * count
        trace.add(at, work, (cores * 1000, _gib(memory), count), interruption=1.0, reclamation=0.1)

    _steady(trace, random, 400, _mean_lognormal(*shape), lambda: _lognormal(random, *shape), add)
    return trace.build()


WEB: tuple[Size, ...] = (
    (250, _gib(0.5), 0),
    (500, _gib(1), 0),
    (1000, _gib(4), 0),
    (2000, _gib(4), 0),
)


def web(seed: int) -> Trace:
    """Web pods of four sizes that live for hours; by day a half more than the mean, by night a half less."""
    random = np.random.default_rng([seed, 12])
    trace = TraceBuilder("web", seed, DAY)
    shape = (1.5 * HOUR, 1.0, 300.0, 24 * HOUR)

    def add(at: float, work: float) -> None:
        size = WEB[int(random.choice(4, p=[0.35, 0.3, 0.2, 0.15]))]
        trace.add(at, work, size, service=True, interruption=0.5)

    _steady(trace, random, 700, _mean_lognormal(*shape), lambda: _lognormal(random, *shape), add, 0.5)
    return trace.build()


def _mixed(seed: int, name: str, key: int, most: int, alive: float) -> Trace:
    random = np.random.default_rng([seed, key])
    trace = TraceBuilder(name, seed, DAY)
    shape = (2 * HOUR, 1.2, 300.0, 24 * HOUR)
    grid = (250, 500, 1000, 1500, 2000, 3000, 4000, 6000, 8000, 12000, 16000, 24000, 32000)
    steps = [size for size in grid if size <= most]
    weights = np.array([size**-0.5 for size in steps])
    weights /= weights.sum()

    def add(at: float, work: float) -> None:
        cores = int(steps[int(random.choice(len(steps), p=weights))])
        ratio = float(random.choice([1, 2, 3, 4, 6, 8]))
        # More than 128 GiB fits one dear type only: then a family is about that type's halves and nothing else.
        memory = min(cores / 1000 * ratio, 128)
        trace.add(at, work, (cores, _gib(memory), 0), service=bool(random.random() < 0.5))

    _steady(trace, random, alive, _mean_lognormal(*shape), lambda: _lognormal(random, *shape), add, 0.3)
    return trace.build()


def mixed8(seed: int) -> Trace:
    """Cores up to 8 with 1 to 8 GiB each; half of them services."""
    return _mixed(seed, "mixed8", 13, 8000, 480)


def mixed32(seed: int) -> Trace:
    """Cores up to 32 with 1 to 8 GiB each; half of them services."""
    return _mixed(seed, "mixed32", 14, 32000, 450)


_CPU_GRID = (100, 250, 500, 1000, 2000, 3000, 4000, 6000, 8000, 12000, 16000)
_GIB_GRID = (0.25, 0.5, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)


def tails(seed: int) -> Trace:
    """Lognormal sizes, lives from a minute to days, and bursts of up to two hundred pods within a minute."""
    random = np.random.default_rng([seed, 15])
    trace = TraceBuilder("tails", seed, DAY)
    shape = (20 * 60.0, 1.8, 60.0, 3 * DAY)

    def size() -> Size:
        cores = _lognormal(random, 0.6, 1.0, 0.1, 16)
        memory = cores * _lognormal(random, 3, 0.6, 0.5, 16)
        # Manifests say 0.1, 0.25, 0.5, ... and whole GiB, not four digits.
        cpu = next(step for step in _CPU_GRID if step >= cores * 999)
        return cpu, _gib(next(step for step in _GIB_GRID if step >= min(memory, 128))), 0

    def add(at: float, work: float) -> None:
        trace.add(at, work, size(), service=bool(random.random() < 0.3))

    _steady(trace, random, 560, _mean_lognormal(*shape), lambda: _lognormal(random, *shape), add, 0.3)
    for _burst in range(18):
        begin, kind = random.uniform(0, trace.horizon), size()
        for _pod in range(int(_lognormal(random, 50, 0.8, 10, 200))):
            trace.add(begin + random.uniform(0, 60), _lognormal(random, 15 * 60, 0.6, 60, 6 * HOUR), kind)
    return trace.build()


def spot(seed: int) -> Trace:
    """Batch that costs a cent to interrupt beside services at $256 and work that must never be."""
    random = np.random.default_rng([seed, 16])
    trace = TraceBuilder("spot", seed, DAY)
    shape = (2 * HOUR, 1.0, 300.0, 24 * HOUR)
    sizes = ((500, 1), (1000, 2), (1000, 4), (2000, 4), (2000, 8), (4000, 8), (4000, 16))

    def add(at: float, work: float) -> None:
        cores, memory = sizes[int(random.integers(len(sizes)))]
        penalty = float(random.choice([0.01, 0.1, 1.0, 8.0, 256.0, math.inf], p=[0.3, 0.2, 0.15, 0.1, 0.15, 0.1]))
        pinned = math.isinf(penalty)
        trace.add(
            at,
            work,
            (cores, _gib(memory), 0),
            service=penalty >= 8,
            interruption=penalty,
            reclamation=math.inf if pinned else min(0.5, max(0.005, penalty / 100)),
        )

    _steady(trace, random, 420, _mean_lognormal(*shape), lambda: _lognormal(random, *shape), add, 0.3)
    return trace.build()


def _hours(
    seed: int, name: str, key: int, alive: float, pod: Callable[[np.random.Generator], dict[str, object]]
) -> Trace:
    """Pods of some hours, drawn by `pod`: the shapes that are awkward in one way each."""
    random = np.random.default_rng([seed, key])
    trace = TraceBuilder(name, seed, 18 * HOUR)
    shape = (2 * HOUR, 1.0, 300.0, 24 * HOUR)

    def add(at: float, work: float) -> None:
        drawn = pod(random)
        trace.add(at, work, drawn.pop("request"), **drawn)  # type: ignore[arg-type]

    _steady(trace, random, alive, _mean_lognormal(*shape), lambda: _lognormal(random, *shape), add, 0.3)
    return trace.build()


def thirds(seed: int) -> Trace:
    """Every pod takes a little less than a third of 8 or 16 cores: three go on a machine, and a rest stays."""
    sizes = ((2600, _gib(10)), (5200, _gib(10)), (5200, _gib(20)))
    return _hours(
        seed, "thirds", 17, 450, lambda random: {"request": (*sizes[int(random.integers(3))], 0), "service": True}
    )


def large(seed: int) -> Trace:
    """One pod in fifty takes 14 cores and 56 GiB; the others half a core."""

    def pod(random: np.random.Generator) -> dict[str, object]:
        big = random.random() < 0.02
        return {"request": (14000, _gib(56), 0) if big else (500, _gib(1), 0), "service": not big}

    return _hours(seed, "large", 18, 700, pod)


def daemon(seed: int) -> Trace:
    """Web pods where a DaemonSet takes a core and a GiB of every node."""

    def pod(random: np.random.Generator) -> dict[str, object]:
        return {"request": WEB[int(random.choice(4, p=[0.35, 0.3, 0.2, 0.15]))], "service": True}

    return _hours(seed, "daemon", 19, 700, pod)


def exclusive(seed: int) -> Trace:
    """A tenth of the pods own a host port, so that no two of them share a node; the others ride along."""

    def pod(random: np.random.Generator) -> dict[str, object]:
        alone = random.random() < 0.1
        size = (2000, _gib(4), 0) if alone else WEB[int(random.choice(4, p=[0.35, 0.3, 0.2, 0.15]))]
        return {"request": size, "service": True, "exclusive": 1 if alone else NOBODY}

    return _hours(seed, "exclusive", 20, 500, pod)


def racks(seed: int) -> Trace:
    """Jobs of 2 to 16 pods that run in one rack or not at all, beside plain pods."""
    random = np.random.default_rng([seed, 21])
    trace = TraceBuilder("racks", seed, DAY)
    shape = (3 * HOUR, 1.0, 600.0, 24 * HOUR)
    gang = 0

    def job(at: float, work: float) -> None:
        nonlocal gang
        gang += 1
        size = ((4000, _gib(8), 0), (4000, _gib(16), 0), (8000, _gib(32), 0))[int(random.integers(3))]
        for _member in range(int(random.choice([2, 4, 8, 16], p=[0.4, 0.3, 0.2, 0.1]))):
            trace.add(at, work, size, reclamation=0.5, gang=gang)

    def plain(at: float, work: float) -> None:
        trace.add(at, work, WEB[int(random.choice(4))], service=True)

    _steady(trace, random, 30, _mean_lognormal(*shape), lambda: _lognormal(random, *shape), job)
    _steady(trace, random, 250, _mean_lognormal(*shape), lambda: _lognormal(random, *shape), plain, 0.3)
    return trace.build()


def thousand(seed: int) -> Trace:
    """A thousand pods within half a minute: plain ones, then GPUs, one pod per node, and jobs that share a rack."""
    random = np.random.default_rng([seed, 23])
    trace = TraceBuilder("thousand", seed, 2 * HOUR)

    def apply(count: int, size: Size, **facts: object) -> None:
        # Deployments are applied one after the other, as from one file.
        nonlocal at
        for _pod in range(count):
            at += random.exponential(0.025)
            trace.add(at, 2 * HOUR, size, service=True, **facts)  # type: ignore[arg-type]

    at = 0.0
    apply(700, (1000, _gib(2), 0))
    apply(100, (2000, _gib(8), 1))
    apply(100, (500, _gib(1), 0), exclusive=1)
    for gang in range(5):
        apply(20, (2000, _gib(4), 0), gang=gang)
    return trace.build()


def _three_types() -> Kinds:
    """A small and a large type and one with GPUs, of each of which a DaemonSet takes a core and a GiB."""
    rows = (("small", 0.40, 8, 32, 0), ("large", 1.50, 32, 128, 0), ("gpu", 12.0, 32, 128, 8))
    return Kinds(
        tuple(f"{name}/{ON_DEMAND}" for name, *_ in rows),
        np.array([[1000 * cpu - 1000, 1024 * memory - 1024, gpus] for _, _, cpu, memory, gpus in rows], np.int64),
        np.array([price for _, price, *_ in rows]),
        np.zeros(len(rows)),
        np.full(len(rows), UNLIMITED, np.int64),
        (1000, 1024, 0),
    )


CLUSTERS = 8


def phases(seed: int) -> Trace:
    """A day of eight clusters whose noons are three hours apart."""
    random = np.random.default_rng([seed, 22])
    trace = TraceBuilder("phases", seed, DAY)
    shape = (1.5 * HOUR, 0.8, 300.0, 12 * HOUR)
    for cluster in range(CLUSTERS):

        def add(at: float, work: float, cluster: int = cluster) -> None:
            size = ((500, _gib(1)), (1000, _gib(4)), (2000, _gib(4)), (2000, _gib(8)))[int(random.integers(4))]
            trace.add(at, work, (*size, 0), service=True, interruption=0.5, cluster=cluster)

        swing, phase = 0.8, 2 * math.pi * cluster / CLUSTERS
        _steady(trace, random, 120, _mean_lognormal(*shape), lambda: _lognormal(random, *shape), add, swing, phase)
    return trace.build(CLUSTERS)


_SHAPES = Limits(1.05, 1.25, 1.25, 1.12)
FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family("gpus", "whole GPUs 1–8, days-long jobs", gpus, Limits(1.02, 1.20, 1.15, 1.10, 0.10)),
        Family("web", "web pods of four sizes, hours", web, Limits(1.02, 1.28, 1.25, 1.15)),
        Family("mixed8", "mixed cpu : memory, up to 8 cores", mixed8, Limits(1.05, 1.25, 1.20, 1.12)),
        Family("mixed32", "mixed cpu : memory, up to 32 cores", mixed32, Limits(1.10, 1.25, 1.20, 1.12)),
        Family("tails", "heavy tails: lognormal sizes, bursts, minutes to days", tails, Limits(1.05, 1.65, 1.55, 1.4)),
        Family(
            "spot",
            "on-demand and spot, penalties from $0.01 to pinned",
            spot,
            Limits(1.05, 1.20, 1.20, 1.12),
            kinds(spot=True),
        ),
        Family("thirds", "thirds of a machine", thirds, _SHAPES),
        Family("large", "one large among many small", large, _SHAPES),
        Family("daemon", "a DaemonSet that takes a cpu", daemon, _SHAPES, kinds(overhead=(1000, 1024, 0))),
        Family("exclusive", "one pod per node, others beside it", exclusive, _SHAPES),
        Family("racks", "rack gangs", racks, _SHAPES, racks=16),
        Family(
            "thousand",
            "a thousand mixed pods at once: GPUs, rack gangs, one pod per node, a DaemonSet",
            thousand,
            Limits(1.10, 1.10, 1.10, 1.05),
            _three_types(),
            racks=60,
        ),
        Family(
            "phases",
            "24 h, 8 clusters out of phase, a reserved base, on-demand above it",
            phases,
            Limits(None, 1.15, 1.15, 1.10),
            kinds(reserved={"m6i.2xlarge": 80}),
            shared_base=True,
        ),
    )
}
