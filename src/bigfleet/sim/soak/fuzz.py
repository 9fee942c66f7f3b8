"""Random scenarios, what must hold in every one of them, and shrinking one that breaks it.

A random scenario has a troubled first half and a quiet second one: whatever happened, the fleet must come to rest with
nothing leaked. Small numbers, because two machines and three pods contain most mistakes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from bigfleet.engine.policy import drain_grace_seconds
from bigfleet.sim.document.document import Amounts, Dollars, Nanoseconds
from bigfleet.sim.scenario import steps as do
from bigfleet.sim.scenario.expectations import Converged, Expectation, NothingLeaked
from bigfleet.sim.scenario.scenario import (
    ClusterSpec,
    Detail,
    OperatorKind,
    PolicySettings,
    Preset,
    Scenario,
    ShardSettings,
)
from bigfleet.sim.scenario.shapes import Colocation, PodShape, SpreadSpec
from bigfleet.sim.scenario.supply import Fleet, Market, Offer, Pace, Pacing
from bigfleet.sim.scenario.workloads import Deployment, Workload
from bigfleet.sim.world.simulation import Simulation
from bigfleet.virtual.kernel import MINUTE, SECOND, Duration

TROUBLE = 12 * MINUTE
LENGTH = 50 * MINUTE
# Where nodes are closed and emptied, rest is promised after two payback times without trouble.
LENGTH_WITH_MOVES = TROUBLE + 2 * 60 * MINUTE + 11 * MINUTE
ZONES = ("zone-a", "zone-b", "zone-c")


def random_scenario(seed: int) -> Scenario:
    """The scenario of a seed."""
    dice = random.Random(f"fuzz/{seed}")
    shapes = {f"shape-{n}": _shape(dice) for n in range(dice.randint(1, 4))}
    clusters = tuple(_cluster(dice, n) for n in range(dice.randint(1, 3)))
    fleet = Fleet(
        offers=tuple(_offer(dice, n) for n in range(dice.randint(1, 4))),
        pace=dice.choice(list(Pace)),
        latencies=Pacing(create=dice.choice([None, Duration.fixed(dice.randint(0, 300) * SECOND)])),
    )
    workloads = tuple(_workload(dice, n, list(shapes), clusters) for n in range(dice.randint(1, 4)))
    names = [cluster.name for cluster in clusters]
    count = dice.randint(0, 5)
    steps = tuple(_step(dice, workloads, names, fleet) for _ in range(count))
    policy = PolicySettings(preset=dice.choice([Preset.LIBRARY, Preset.PRODUCTION]))
    shard = ShardSettings(drain_after_grace=dice.random() < 0.3)
    kinds = list(OperatorKind)
    clusters = tuple(replace(cluster, operator=dice.choice(kinds)) for cluster in clusters)
    return Scenario(
        name=f"fuzz-{seed}",
        description="A random scenario.",
        duration=Nanoseconds(LENGTH_WITH_MOVES if policy.preset is Preset.PRODUCTION else LENGTH),
        seed=seed,
        fleets=(fleet,),
        clusters=clusters,
        shapes=shapes,
        workloads=workloads,
        steps=steps,
        policy=policy,
        shard=shard,
        trace=Detail.COUNTS,
        expect=promises(may_retry=not shard.drain_after_grace and _pods_outlast_a_grace(shapes, clusters)),
    )


def promises(*, may_retry: bool = False) -> tuple[Expectation, ...]:
    """What must hold in every random scenario.

    A preemption whose victims are still there when their grace is over fails, and is tried again later and later: where
    that can happen, nobody promises when the last attempt is.
    """
    kept: tuple[Expectation, ...] = (NothingLeaked(failed_allowed=1_000),)
    return kept if may_retry else (*kept, Converged(window=Nanoseconds(10 * MINUTE)))


def _pods_outlast_a_grace(shapes: dict[str, PodShape], clusters: tuple[ClusterSpec, ...]) -> bool:
    priorities = [shape.priority for shape in shapes.values()]
    shortest = drain_grace_seconds(max(priorities) - min(priorities)) * SECOND
    return any(cluster.drain_reports and cluster.eviction.high > shortest for cluster in clusters)


def problems(scenario: Scenario, engine: Callable[[], Any] | None = None) -> list[str]:
    """What a scenario breaks; an exception is a problem too."""
    try:
        run = Simulation(scenario, check=True, engine=engine).run()
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
    found = run.failures()
    for name, cluster in run.clusters.items():
        if sum(cluster.live.values()) != sum(podset.live for podset in cluster.podsets.values()):
            found.append(f"{name} lost count of its pods")
    return found


def shrink(scenario: Scenario, fails: Callable[[Scenario], bool], budget: int = 200) -> Scenario:
    """A smaller scenario that still fails."""
    smaller = scenario
    progress = True
    while progress and budget > 0:
        progress = False
        for candidate in _simpler(smaller):
            budget -= 1
            if budget <= 0:
                break
            if fails(candidate):
                smaller, progress = candidate, True
                break
    return smaller


def _simpler(scenario: Scenario) -> Iterator[Scenario]:
    """Every scenario that is one step simpler and still makes sense."""
    for field in ("steps", "workloads", "clusters"):
        entries = getattr(scenario, field)
        for place in range(len(entries)):
            yield from _made(scenario, **{field: entries[:place] + entries[place + 1 :]})
    fleet = scenario.fleets[0]
    for place in range(len(fleet.offers)):
        rest = fleet.offers[:place] + fleet.offers[place + 1 :]
        yield from _made(scenario, fleets=(replace(fleet, offers=rest),)) if rest else ()
    for place, offer in enumerate(fleet.offers):
        for name in ("slots", "idle", "configured_per_cluster"):
            size = getattr(offer, name)
            for less in {0, size // 2, size - 1} - {size, -1}:
                if offer.slots + offer.idle + offer.configured_per_cluster - size + less > 0:
                    changed = replace(offer, **{name: less})
                    offers = (*fleet.offers[:place], changed, *fleet.offers[place + 1 :])
                    yield from _made(scenario, fleets=(replace(fleet, offers=offers),))
    for place, workload in enumerate(scenario.workloads):
        if isinstance(workload, Deployment):
            for changes in (
                {"replicas": workload.replicas // 2},
                {"replicas": workload.replicas - 1},
                {"objects": workload.objects // 2},
            ):
                if changes.get("objects", 1) >= 1 and changes.get("replicas", 0) >= 0:
                    changed_workload = replace(workload, **changes)  # type: ignore[arg-type]
                    if changed_workload != workload:
                        rest_workloads = (
                            *scenario.workloads[:place],
                            changed_workload,
                            *scenario.workloads[place + 1 :],
                        )
                        yield from _made(scenario, workloads=rest_workloads)
    if fleet.pace is not Pace.INSTANT:
        yield from _made(scenario, fleets=(replace(fleet, pace=Pace.INSTANT, latencies=Pacing()),))


def _made(scenario: Scenario, **changes: Any) -> Iterator[Scenario]:
    try:
        yield scenario.with_(**changes)
    except ValueError:
        return  # something still refers to what was taken away


def _shape(dice: random.Random) -> PodShape:
    same = dice.choice([Colocation.NONE] * 4 + [Colocation.RACK, Colocation.ZONE])
    return PodShape(
        resources=Amounts({"cpu": str(dice.choice([1, 2, 4])), "memory": f"{dice.choice([1, 4, 8])}Gi"}),
        priority=dice.choice([0, 100, 1000, 1_000_000]),
        interruption_penalty=Dollars(dice.choice([0, 1, 64, 8192, float("inf")])),
        reclamation_penalty=Dollars(dice.choice([0, 1, 64])),
        zones=tuple(sorted(dice.sample(ZONES, dice.randint(1, 2)))) if dice.random() < 0.2 else (),
        same=same,
        spread=(SpreadSpec(max_skew=dice.randint(1, 2)),) if same is Colocation.NONE and dice.random() < 0.2 else (),
    )


def _cluster(dice: random.Random, number: int) -> ClusterSpec:
    return ClusterSpec(
        name=f"cluster-{number}",
        eviction=Duration.fixed(dice.choice([0, 2, 15, 120]) * SECOND),
        drain_reports=dice.random() < 0.8,
        overhead=Amounts({"cpu": "100m"}) if dice.random() < 0.3 else Amounts({}),
    )


def _offer(dice: random.Random, number: int) -> Offer:
    market = dice.choice(list(Market))
    racks = dice.choice([0, 2, 3])
    hosts = market in (Market.BARE_METAL, Market.RESERVED)
    return Offer(
        name=f"offer-{number}",
        instance_type=f"type-{dice.randint(0, 2)}",
        capacity_type=market,
        slots=0 if market is Market.BARE_METAL else dice.randint(1, 12),
        idle=dice.randint(1, 8) if hosts else 0,
        configured_per_cluster=dice.choice([0, 0, 0, 1, 3]),
        zones=tuple(sorted(dice.sample(ZONES, dice.randint(1, 3)))),
        racks=racks,
        rack_block=dice.choice([0, 2, 4]) if racks else 0,
        price_per_hour=round(dice.uniform(0.1, 3.0), 2),
        interruption_probability=round(dice.uniform(0.01, 0.3), 2) if market is Market.SPOT else 0.0,
        resources=Amounts({"cpu": str(dice.choice([4, 8, 16])), "memory": f"{dice.choice([16, 32, 64])}Gi"}),
    )


def _workload(dice: random.Random, number: int, shapes: list[str], clusters: tuple[ClusterSpec, ...]) -> Workload:
    chosen = dice.sample([cluster.name for cluster in clusters], dice.randint(1, len(clusters)))
    return Deployment(
        name=f"workload-{number}",
        shape=dice.choice(shapes),
        replicas=dice.randint(0, 12),
        objects=dice.choice([1, 1, 1, 2, 3]),
        clusters=tuple(sorted(chosen)),
        start=Nanoseconds(dice.choice([0, 0, dice.randint(0, TROUBLE // SECOND) * SECOND])),
    )


def _step(dice: random.Random, workloads: tuple[Workload, ...], clusters: list[str], fleet: Fleet) -> do.Step:
    at = Nanoseconds(dice.randint(0, TROUBLE // SECOND) * SECOND)
    lasts = Nanoseconds(dice.randint(5, 400) * SECOND)
    offer = dice.choice(fleet.offers).name
    some = tuple(sorted(dice.sample(clusters, dice.randint(1, len(clusters)))))
    workload = dice.choice(workloads).name
    made: list[Callable[[], do.Step]] = [
        lambda: do.Scale(at=at, workload=workload, replicas=dice.randint(0, 15)),
        lambda: do.Withdraw(at=at, clusters=some),
        lambda: do.RollingRestart(at=at, workload=workload, surge=0.3, pause=Nanoseconds(20 * SECOND)),
        lambda: do.SpotWave(at=at, fraction=dice.choice([0.5, 1.0])),
        lambda: do.ZoneLoss(at=at, zone=_zone(dice, fleet), for_=lasts),
        lambda: do.LoseHosts(at=at, count=dice.randint(1, 4)),
        lambda: do.BreakMachines(at=at, count=dice.randint(1, 2), repaired_after=lasts),
        lambda: do.FailNext(at=at, transition=dice.choice(["create", "configure", "drain"]), count=dice.randint(1, 3)),
        lambda: do.RateLimitStorm(at=at, for_=lasts, per_second=dice.choice([0.1, 1.0])),
        lambda: do.Stockout(at=at, for_=lasts, offer=offer),
        lambda: do.ProviderOutage(at=at, for_=lasts),
        lambda: do.ShardRestart(
            at=at, down=Nanoseconds(dice.randint(1, 60) * SECOND), lose_journal=dice.random() < 0.3
        ),
        lambda: do.OperatorDisconnect(at=at, for_=lasts, clusters=some),
        lambda: do.EmptyRollup(at=at, for_=lasts, clusters=some),
        lambda: do.Price(at=at, offer=offer, price_per_hour=round(dice.uniform(0.1, 3.0), 2)),
        lambda: do.Quota(at=at, offer=offer, withdraw=dice.randint(0, 4)),
    ]
    return dice.choice(made)()


def _zone(dice: random.Random, fleet: Fleet) -> str:
    """A zone that has machines; drawn from all of them, so that other zones do not make another history."""
    wanted, known = dice.choice(ZONES), {zone for offer in fleet.offers for zone in offer.zones}
    return wanted if wanted in known else min(known)
