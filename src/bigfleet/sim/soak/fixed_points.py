"""Steady demand must come to rest: families of clusters whose pods never change, played until nothing may happen.

After two payback times whatever was worth moving has been moved, and what is left is left alone until something
changes; from then on no cycle may decide anything. The families are those the rules are judged by, each with the
mistakes it invites: whole devices, four sizes, cpu beside memory, long tails, two markets, pods that leave a third of a
node over, DaemonSets, anti-affinity, gangs, and owned machines that carry little in one cluster while others buy.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from bigfleet.sim.document.document import Amounts, Dollars, Nanoseconds
from bigfleet.sim.scenario.scenario import ClusterSpec, Detail, OperatorKind, PolicySettings, Scenario
from bigfleet.sim.scenario.shapes import Colocation, PodShape
from bigfleet.sim.scenario.supply import Fleet, Market, Offer, Pace, PriceList
from bigfleet.sim.scenario.workloads import Deployment
from bigfleet.sim.world.simulation import Simulation
from bigfleet.virtual.kernel import HOUR, SECOND

SETTLED_AFTER = 2 * HOUR
"""Two payback times."""
QUIET_CYCLES = 400
KINDS = ("Provision", "Bootstrap", "Reclaim", "Preempt", "Delete", "Close", "Reopen")


@dataclass(frozen=True, slots=True)
class Rest:
    """How a family came to rest: pods that run, actions while it settled, and those after it should have."""

    family: str
    seed: int
    pods: int
    running: int
    settling: int
    late: int

    @property
    def at_rest(self) -> bool:
        return self.late == 0 and self.running == self.pods


def come_to_rest(family: str, pods: int, seed: int = 1) -> Rest:
    """Play a family of about so many pods for two payback times and 400 cycles more."""
    scenario = steady(family, pods, seed)
    run = Simulation(scenario).run()
    live, running = run.pods("", "")
    everything = sum(run.actions(kind, 0, "") for kind in KINDS)
    late = sum(run.actions(kind, SETTLED_AFTER, "") for kind in KINDS)
    return Rest(family, seed, live, running, everything - late, late)


def steady(family: str, pods: int, seed: int = 1) -> Scenario:
    """The scenario of a family."""
    made = FAMILIES[family](pods, random.Random(f"{family}/{seed}"))
    return Scenario(
        name=f"steady-{family}",
        description="Pods that never change.",
        duration=Nanoseconds(SETTLED_AFTER + QUIET_CYCLES * 10 * SECOND),
        seed=seed,
        operator=OperatorKind.PLACEMENT,
        trace=Detail.HOURLY,
        policy=PolicySettings(eviction_rate=1.0),  # so that what is worth moving is moved in time
        fleets=(made.fleet,),
        clusters=tuple(ClusterSpec(name=name, overhead=made.overhead) for name in made.clusters),
        shapes=made.shapes,
        workloads=tuple(
            Deployment(name=name, shape=name, replicas=count, objects=objects, clusters=made.only_in.get(name, ()))
            for name, (count, objects) in made.counts.items()
        ),
    )


@dataclass(frozen=True, slots=True)
class _Family:
    """`only_in`: clusters a workload is in, where it is not in all of them."""

    fleet: Fleet
    shapes: dict[str, PodShape]
    counts: dict[str, tuple[int, int]]
    overhead: Amounts
    clusters: tuple[str, ...] = ("only",)
    only_in: dict[str, tuple[str, ...]] = field(default_factory=dict)


def _family(
    shapes: dict[str, PodShape],
    counts: dict[str, tuple[int, int]],
    *types: str,
    markets: tuple[Market, ...] = (Market.ON_DEMAND,),
    overhead: Amounts | None = None,
) -> _Family:
    slots = 4 + sum(count * objects for count, objects in counts.values())
    sold = PriceList(types=types, markets=markets, slots=slots).offers()
    return _Family(Fleet(pace=Pace.QUICK, offers=sold), shapes, counts, overhead or Amounts({}))


def _pod(cpu: float, gib: float, gpus: int = 0, *, penalty: float = 0.0, apart: bool = False) -> PodShape:
    sizes = {"cpu": f"{round(cpu * 1000)}m", "memory": f"{round(gib * 1024)}Mi"}
    if gpus:
        sizes["nvidia.com/gpu"] = str(gpus)
    return PodShape(resources=Amounts(sizes), priority=1000, interruption_penalty=Dollars(penalty), apart=apart)


def _shared(pods: int, names: list[str]) -> dict[str, tuple[int, int]]:
    """So many pods of each, more of the first."""
    weights = [1 / (place + 1) for place in range(len(names))]
    return {name: (max(1, round(pods * weight / sum(weights))), 1) for name, weight in zip(names, weights, strict=True)}


def _gpus(pods: int, dice: random.Random) -> _Family:
    shapes = {f"gpus-{count}": _pod(6 * count, 24 * count, count) for count in (1, 2, 4, 8)}
    return _family(shapes, _shared(pods, list(shapes)), "p3.2xlarge", "g6.12xlarge", "p3.16xlarge", "m6i.2xlarge")


def _web(pods: int, dice: random.Random) -> _Family:
    shapes = {f"web-{n}": _pod(cpu, gib, penalty=256) for n, (cpu, gib) in enumerate(_WEB)}
    return _family(shapes, _shared(pods, list(shapes)), *_GENERAL)


def _mixed(most: int) -> Callable[[int, random.Random], _Family]:
    def family(pods: int, dice: random.Random) -> _Family:
        sizes = [(dice.randint(1, most), dice.choice((1, 2, 4, 7))) for _ in range(8)]
        # No more memory than the largest type has: what fits nothing would never run.
        shapes = {f"mixed-{n}": _pod(cpu, min(120, cpu * ratio)) for n, (cpu, ratio) in enumerate(sizes)}
        return _family(shapes, _shared(pods, list(shapes)), *_GENERAL, *_LARGE)

    return family


def _tails(pods: int, dice: random.Random) -> _Family:
    sizes = [min(30.0, math.exp(dice.gauss(0.0, 1.0))) for _ in range(12)]
    shapes = {f"tail-{n}": _pod(cpu, min(100.0, cpu * dice.uniform(1, 6))) for n, cpu in enumerate(sizes)}
    return _family(shapes, _shared(pods, list(shapes)), *_GENERAL, *_LARGE)


def _markets(pods: int, dice: random.Random) -> _Family:
    shapes = {f"worth-{n}": _pod(2, 7, penalty=worth) for n, worth in enumerate((0.01, 0.5, 8, 256, 4096))}
    return _family(shapes, _shared(pods, list(shapes)), *_GENERAL, markets=(Market.ON_DEMAND, Market.SPOT))


def _thirds(pods: int, dice: random.Random) -> _Family:
    return _family({"third": _pod(2.7, 10)}, {"third": (pods, 1)}, *_GENERAL)


def _one_large(pods: int, dice: random.Random) -> _Family:
    return _family(
        {"small": _pod(1, 3), "large": _pod(30, 60)}, {"small": (pods, 1), "large": (1, 1)}, *_GENERAL, *_LARGE
    )


def _daemons(pods: int, dice: random.Random) -> _Family:
    return _family({"pod": _pod(3, 8)}, {"pod": (pods, 1)}, *_GENERAL, overhead=Amounts({"cpu": "1", "memory": "1Gi"}))


def _apart(pods: int, dice: random.Random) -> _Family:
    shapes = {"store": _pod(1, 4, apart=True), "web": _pod(1, 4)}
    return _family(shapes, {"store": (max(2, pods // 3), 1), "web": (pods - pods // 3, 1)}, *_GENERAL)


def _gangs(pods: int, dice: random.Random) -> _Family:
    shape = PodShape(resources=Amounts({"cpu": "6", "memory": "20Gi"}), priority=1000, same=Colocation.RACK)
    offer = Offer(name="racked", instance_type="m6i.2xlarge", slots=4 * pods, racks=8, zones=("zone-a", "zone-b"))
    return _Family(
        Fleet(pace=Pace.QUICK, offers=(offer,)), {"ring": shape}, {"ring": (4, max(1, pods // 4))}, Amounts({})
    )


def _owned(pods: int, dice: random.Random) -> _Family:
    """Three clusters with as many owned machines each, which hold five pods: one has hardly more than a pod on each,
    one nearly fills them, one buys a third as many beside them."""
    each = max(2, pods // 12)
    own = Offer(name="owned", instance_type="m6i.2xlarge", capacity_type=Market.RESERVED, configured_per_cluster=each)
    few, many = each + 1, 5 * each + max(1, 5 * (each // 3))
    counts = {"few": (few, 1), "many": (many, 1), "some": (pods - few - many, 1)}
    sold = PriceList(types=_GENERAL, markets=(Market.ON_DEMAND,), slots=pods).offers()
    return _Family(
        Fleet(pace=Pace.QUICK, offers=(own, *sold)), {name: _pod(1.5, 5) for name in counts}, counts, Amounts({}),
        tuple(counts), {name: (name,) for name in counts},
    )  # fmt: skip


_WEB = ((0.25, 0.5), (0.5, 1), (1, 2), (2, 4))
_GENERAL = ("m6i.xlarge", "m6i.2xlarge", "c6i.2xlarge", "r6i.xlarge")
_LARGE = ("m6i.8xlarge", "c6i.8xlarge", "r6i.4xlarge")
FAMILIES: dict[str, Callable[[int, random.Random], _Family]] = {
    "gpus": _gpus,
    "web": _web,
    "mixed-8": _mixed(8),
    "mixed-32": _mixed(32),
    "tails": _tails,
    "markets": _markets,
    "thirds": _thirds,
    "one-large": _one_large,
    "daemons": _daemons,
    "apart": _apart,
    "gangs": _gangs,
    "owned": _owned,
}
