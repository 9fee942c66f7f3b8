"""Replaying a shard's `--record` file: deciding every step again, and asking what would have been.

Deciding again feeds the engine the recorded inputs, unchanged or with another policy and other prices, and shows its
actions. *What if* goes further: the recorded roll-ups become demand over time, the recorded machines become a fleet,
and both become a scenario that plays in closed loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from bigfleet.engine.batches import REMOVED, MachineBatch, Rollup, Shape
from bigfleet.engine.policy import Policy
from bigfleet.engine.results import Disposition
from bigfleet.model.billing import added_by_buying
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.model.names import ZONE_LABEL
from bigfleet.model.penalty import bucket_dollars
from bigfleet.model.profile import Profile
from bigfleet.model.requirement import Operator
from bigfleet.model.resources import Resources
from bigfleet.model.spread import WhenUnsatisfiable
from bigfleet.provider.fake.offerings import RACK_LABEL
from bigfleet.shard.recording.format import RecordedStep, read_recording
from bigfleet.sim.document.document import Amounts, DocumentError, Dollars, Labels, Nanoseconds
from bigfleet.sim.document.text import label
from bigfleet.sim.replay.recorded_policy import changed, settings_of
from bigfleet.sim.scenario.scenario import ClusterSpec, Detail, OperatorKind, Scenario, ShardSettings
from bigfleet.sim.scenario.shapes import (
    Colocation,
    Match,
    PodShape,
    RequirementSpec,
    SpreadSpec,
    TolerationSpec,
    Unsatisfiable,
)
from bigfleet.sim.scenario.supply import Fleet, Market, Offer, TaintSpec, priced_as
from bigfleet.sim.scenario.workloads import Level, Levels
from bigfleet.sim.world.trace import Trace
from bigfleet.virtual.kernel import MINUTE

_MARKETS = {
    int(CapacityType.BARE_METAL): Market.BARE_METAL,
    int(CapacityType.RESERVED): Market.RESERVED,
    int(CapacityType.ON_DEMAND): Market.ON_DEMAND,
    int(CapacityType.SPOT): Market.SPOT,
    int(CapacityType.UNSPECIFIED): Market.ON_DEMAND,
}
_COLOCATIONS = {RACK_LABEL: Colocation.RACK, ZONE_LABEL: Colocation.ZONE}


@dataclass(frozen=True, slots=True)
class Decided:
    """All steps of a recording, decided again."""

    steps: int
    actions: dict[str, int]
    dollars_per_hour_bought: float
    shortfalls: int
    trace: str


def decide_again(
    path: Path,
    engine: Callable[[], Any],
    *,
    prices: Mapping[str, float] = {},
    policy: Mapping[str, Any] = {},
) -> Decided:
    """Feed the engine what the shard fed it; `prices` and `policy`, as a scenario spells them, change the question."""
    decider = engine()
    trace = Trace(Detail.MACHINES)
    actions: Counter[str] = Counter()
    price_of: dict[str, float] = {}
    bought = 0.0
    steps = short = began = 0
    repriced: set[str] = set()
    for recorded in _steps(path):
        began = began or recorded.now
        machines = _repriced(recorded.machines, prices, repriced)
        if machines is not None:
            for number in range(len(machines)):
                if machines.state[number] != REMOVED:
                    shape = machines.shapes[machines.shape[number]]
                    price_of[machines.ids[number]] = added_by_buying(shape.capacity_type, shape.price)
        rules = changed(recorded.policy, policy) if policy else recorded.policy
        result = decider.step(machines, recorded.demand, rules, recorded.now, recorded.conditions)
        emitted = [
            (action.kind.name.capitalize(), action.cluster, action.machine)
            for action in result.actions.rows()
            if action.disposition == Disposition.EMIT
        ]
        actions.update(kind for kind, _, _ in emitted)
        bought += sum(price_of.get(machine, 0.0) for kind, _, machine in emitted if kind == "Provision")
        short = len(list(result.shortfalls.rows()))
        trace.decided(recorded.now - began, "shard", recorded.step, emitted, {"short": short})
        steps += 1
    if not steps:
        raise DocumentError(f"{path}: holds no step; record a shard for at least one cycle")
    for name in prices.keys() - repriced:
        raise DocumentError(f"--price names {name!r}; the recording has no machine of that instance type")
    return Decided(steps, dict(sorted(actions.items())), round(bought, 6), short, trace.text())


def scenario_of(path: Path) -> Scenario:
    """The recording as a scenario: its machines for sale as they first appeared, its demand over time."""
    machines: dict[str, tuple[Shape, int, str]] = {}
    shapes: dict[str, PodShape] = {}
    names: dict[tuple[str, str], str] = {}
    levels: list[Level] = []
    current: dict[tuple[str, str], int] = {}
    said: dict[str, OperatorKind] = {}
    began = last = 0
    policy = Policy.production()
    for recorded in _steps(path):
        began = began or recorded.now
        last, policy = recorded.now, recorded.policy
        if recorded.machines is not None:
            for id, shape, state, cluster in _records(recorded.machines):
                machines.setdefault(id, (shape, state, cluster))
        for rollup in recorded.demand.rollups if recorded.demand is not None else ():
            levels += _levels(rollup, recorded.now - began, shapes, names, current)
            said[rollup.cluster] = OperatorKind.PLACEMENT if rollup.counted is not None else OperatorKind.REFERENCE
    if not machines:
        raise DocumentError(f"{path}: names no machine; record a shard that has listed its provider")
    clusters = sorted({level.cluster for level in levels} | {c for _, _, c in machines.values() if c})
    return Scenario(
        name="recorded",
        description=f"What {path.name} recorded, replayed in closed loop.",
        duration=Nanoseconds(-(-(last - began + 10 * MINUTE) // MINUTE) * MINUTE),
        fleets=tuple(_fleets(machines)),
        clusters=tuple(ClusterSpec(name=name, operator=said.get(name)) for name in clusters or ["cluster"]),
        shapes=shapes,
        workloads=(Levels(name="recorded", levels=tuple(levels)),) if levels else (),
        policy=settings_of(policy),
        shard=ShardSettings(cycle=Nanoseconds(policy.cycle_ns)),
        trace=Detail.COUNTS,
    )


def _steps(path: Path) -> Iterator[RecordedStep]:
    """The steps of a recording; one sentence where it is damaged. A crash merely ends it early."""
    steps = 0
    try:
        for recorded in read_recording(path):
            yield recorded
            steps += 1
    except (ValueError, KeyError, TypeError, IndexError, msgspec.MsgspecError) as error:
        raise DocumentError(f"{path}: is damaged after step {steps}; record it again, or cut it off there") from error


def _records(batch: MachineBatch) -> Iterator[tuple[str, Shape, int, str]]:
    for number in range(len(batch)):
        state = int(batch.state[number])
        if state != REMOVED:
            place = int(batch.cluster[number])
            cluster = batch.clusters[place] if place >= 0 else ""
            yield batch.ids[number], batch.shapes[int(batch.shape[number])], state, cluster


def _repriced(batch: MachineBatch | None, prices: Mapping[str, float], met: set[str]) -> MachineBatch | None:
    """Machines at other prices; `met` collects the names that were of use."""
    if batch is None or not prices:
        return batch
    shapes = []
    for shape in batch.shapes:
        name = priced_as(prices, shape.instance_type, _MARKETS[shape.capacity_type])
        met |= {name} - {""}
        shapes.append(replace(shape, price=prices[name]) if name else shape)
    return msgspec.structs.replace(batch, shapes=shapes)


def _levels(
    rollup: Rollup,
    at: int,
    shapes: dict[str, PodShape],
    names: dict[tuple[str, str], str],
    current: dict[tuple[str, str], int],
) -> Iterator[Level]:
    """What a roll-up changes: rows as so many pods of their smallest unit."""
    seen = set()
    for row in range(len(rollup)):
        profile = rollup.profiles[int(rollup.profile[row])]
        place = int(rollup.group[row])
        group = rollup.groups[place] if place >= 0 else ""
        unit = Resources(dict(zip(rollup.resources, map(int, rollup.min_unit[row]), strict=True)))
        total = dict(zip(rollup.resources, map(int, rollup.aggregate[row]), strict=True))
        pods = max((-(-total[name] // amount) for name, amount in unit.items()), default=0)
        shape_key = (profile.fingerprint, unit.canonical)
        name = names.setdefault(shape_key, f"row-{len(names):03}")
        shapes.setdefault(name, _pod_shape(profile, unit))
        key = (rollup.cluster, f"{name}/{group}" if group else name)
        seen.add(key)
        if current.get(key) != pods:
            current[key] = pods
            yield Level(at=Nanoseconds(at), cluster=rollup.cluster, object=key[1], shape=name, pods=pods)
    for key in [key for key in current if key[0] == rollup.cluster and key not in seen and current[key]]:
        current[key] = 0
        yield Level(at=Nanoseconds(at), cluster=key[0], object=key[1], shape=key[1].partition("/")[0], pods=0)


def _pod_shape(profile: Profile, unit: Resources) -> PodShape:
    same = profile.same
    return PodShape(
        resources=Amounts(unit.to_wire()),
        priority=profile.priority,
        interruption_penalty=Dollars(profile.interruption_dollars),
        reclamation_penalty=Dollars(bucket_dollars(profile.reclamation_bucket)),
        requirements=tuple(
            RequirementSpec(key=r.key, operator=Match(r.operator.text), values=r.values)
            for r in profile.requirements
            if r.operator not in (Operator.SAME, Operator.UNSPECIFIED)
        ),
        same=Colocation.NONE if same is None else _COLOCATIONS.get(same.key, Colocation.ZONE),
        spread=tuple(
            SpreadSpec(
                key=s.topology_key,
                max_skew=max(1, s.max_skew),
                when=Unsatisfiable.SCHEDULE_ANYWAY
                if s.when == WhenUnsatisfiable.SCHEDULE_ANYWAY
                else Unsatisfiable.DO_NOT_SCHEDULE,
            )
            for s in profile.spread
        ),
        tolerations=tuple(
            TolerationSpec(key=t.key, operator=t.operator, value=t.value, effect=t.effect) for t in profile.tolerations
        ),
    )


def _fleets(machines: dict[str, tuple[Shape, int, str]]) -> list[Fleet]:
    """Machines of one shape are one offer; hosts that existed are idle, so that the replay may bind them anew."""
    counted: dict[Shape, Counter[bool]] = {}
    for shape, state, _ in machines.values():
        counted.setdefault(shape, Counter())[state not in (MachineState.SPECULATIVE, MachineState.CREATING)] += 1
    offers: dict[str, list[Offer]] = {}
    names: Counter[str] = Counter()
    for shape, counts in sorted(counted.items(), key=lambda each: repr(each[0])):
        market = _MARKETS[shape.capacity_type]
        name = label(f"{shape.instance_type or 'unknown'}-{market}-{shape.zone or 'zone'}", longest=50)
        names[name] += 1
        offers.setdefault(shape.provider, []).append(
            Offer(
                name=name if names[name] == 1 else f"{name}-{names[name]}",
                instance_type=shape.instance_type or "unknown",
                capacity_type=market,
                slots=counts[False],
                idle=counts[True],
                zones=(shape.zone or "zone",),
                price_per_hour=shape.price,
                interruption_probability=shape.probability,
                resources=Amounts(shape.allocatable.to_wire()),
                labels=Labels(dict(shape.labels)),
                taints=tuple(TaintSpec(key=t.key, value=t.value, effect=t.effect) for t in shape.taints),
            )
        )
    return [Fleet(provider=provider or "provider", offers=tuple(found)) for provider, found in sorted(offers.items())]
