"""The soak: many cycles of random demand on the production shard core and engine, with an inline provider.

Everything happens within the cycle that asks for it, so nothing may be left over: no machine in a transition, none
lost, none invented, no operation under way. A fixed seed makes a failing soak repeatable. The same demand with
sessions, links and the kit's provider is `soak_protocol.py`.
"""

from __future__ import annotations

import gc
import random
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bigfleet.engine.batches import NONE, Rollup, Shape
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.model.penalty import bucket_for
from bigfleet.model.profile import Profile
from bigfleet.model.resources import Resources
from bigfleet.shard.contract import events as ev
from bigfleet.shard.contract.config import ShardConfig
from bigfleet.shard.contract.step_result import take_step
from bigfleet.shard.core.core import ShardCore
from bigfleet.shard.runtime.gc_tuning import as_when_serving
from bigfleet.sim.world.host import EPOCH
from bigfleet.virtual.kernel import SECOND

GPU = "nvidia.com/gpu"
CYCLE = 10 * SECOND
ACTIONS = "bigfleet_shard_actions_total"

_INTERRUPTION, _RECLAMATION = bucket_for(8192), bucket_for(1)

# Columns of a roll-up of at most one row.
_FIRST, _NO_GROUP, _ONE = np.zeros(1, np.int32), np.full(1, NONE, np.int32), np.ones((1, 1), np.int64)

_AFTER = {
    ev.CallKind.CREATE: MachineState.IDLE,
    ev.CallKind.CONFIGURE: MachineState.CONFIGURED,
    ev.CallKind.DRAIN: MachineState.IDLE,
    ev.CallKind.DELETE: MachineState.SPECULATIVE,
}


@dataclass(frozen=True, slots=True)
class SoakConfig:
    """The numbers of a soak."""

    cycles: int = 10_000
    idle: int = 1_000
    speculative: int = 2_000
    clusters: int = 30
    churn_every: int = 5
    seed: int = 0xCAFEBABE
    most: int = 50
    check_every: int = 1_000


@dataclass(frozen=True, slots=True)
class SoakReport:
    """What a soak came to. `passed` says that nothing leaked, nothing is stuck and memory stayed flat."""

    protocol: str
    config: dict[str, Any]
    seconds: float
    cpu_seconds: float
    cycles: int
    actions: dict[str, int]
    machines: int
    states: dict[str, int]
    leaked: list[str]
    megabytes_early: float
    megabytes_late: float
    passed: bool

    def record(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "milliseconds_per_cycle": round(1000 * self.seconds / self.cycles, 3),
            "actions_total": sum(self.actions.values()),
        }


class InlineProvider:
    """A provider that finishes every call before it answers."""

    def __init__(self, name: str, machines: list[ev.ListedMachine]) -> None:
        self.name = name
        self.machines = {machine.id: machine for machine in machines}
        self._changed: dict[str, None] = {}

    def call(self, wanted: ev.CallProvider) -> ev.Event:
        record = self.machines[wanted.machine]
        state = _AFTER[wanted.kind]
        bound = state is MachineState.CONFIGURED
        record = ev.ListedMachine(
            record.id,
            state,
            record.shape,
            host="" if state is MachineState.SPECULATIVE else f"host-{record.id}",
            cluster=wanted.cluster if bound else "",
            metadata=wanted.metadata if bound else (),
        )
        self.machines[wanted.machine] = record
        self._changed[wanted.machine] = None
        return ev.CallDone(wanted.op, record)

    def list(self, wanted: ev.StartList, now: int) -> ev.Event:
        full = wanted.full or not wanted.revision
        chosen = self.machines if full else self._changed
        machines = tuple(self.machines[id] for id in chosen)
        self._changed = {}
        return ev.ListArrived(self.name, now, full, True, machines, revision=b"1")


class Soak:
    """One soak, cycle by cycle."""

    def __init__(self, config: SoakConfig, engine: Callable[[], Any]) -> None:
        self.config = config
        self.actions: Counter[str] = Counter()
        self.now = EPOCH
        self._dice = random.Random(config.seed)
        self._engine = engine()
        self.provider = InlineProvider("inline", _machines(config))
        self.core = ShardCore(
            ShardConfig(
                providers=("inline",),
                incremental_reconcile=True,
                full_list_interval=86_400 * SECOND,
                local_bootstrap=True,
                reclaim_hold=0,
                reclaim_cap_fraction=0.0,
                empty_rollup_guard=False,
                available_capacity_interval=3600 * SECOND,
            ),
            ev.JournalState(1),
        )
        self._inbox: deque[ev.Event] = deque()
        self._perform: dict[type, Callable[[Any], None]] = {
            ev.RunStep: self._step,
            ev.CallProvider: lambda wanted: self._inbox.append(self.provider.call(wanted)),
            ev.StartList: lambda wanted: self._inbox.append(self.provider.list(wanted, self.now)),
            ev.WakeSession: lambda wanted: self._inbox.append(ev.SessionWritable(wanted.session)),
            ev.Count: self._count,
        }
        self._carry_out(self.core.start(self.now))
        for number in range(config.clusters):
            self._inbox.append(ev.SessionOpened(number + 1, f"cluster-{number:03}"))
        self._pump()

    def cycle(self, number: int) -> None:
        """Ten simulated seconds: perhaps some demand changes, and whatever follows from it."""
        self.now += CYCLE
        if number % self.config.churn_every == 0:
            self._churn(number // self.config.churn_every)
        self._inbox.append(ev.TimerDue())
        self._pump()

    def settle(self) -> None:
        """A few quiet cycles, for what the last change started."""
        for _ in range(5):
            self.now += CYCLE
            self._inbox.append(ev.TimerDue())
            self._pump()

    def leaked(self) -> list[str]:
        """Machines lost, invented, stuck or seen differently by shard and provider."""
        wanted = self.config.idle + self.config.speculative
        found = [f"{op.machine.key} is still {op.stage.value}" for op in self.core.state.operations]
        seen = {view.key: view.record for view in self.core.machines()}
        if len(seen) != wanted:
            found.append(f"{len(seen)} machines instead of {wanted}")
        for id, record in self.provider.machines.items():
            mine = seen.get(id)
            if (
                mine is None
                or (mine.state, mine.cluster) != (record.state, record.cluster)
                or record.state not in (MachineState.SPECULATIVE, MachineState.IDLE, MachineState.CONFIGURED)
            ):
                found.append(id)
        return found

    def _churn(self, change: int) -> None:
        dice, config = self._dice, self.config
        cluster = dice.randrange(config.clusters)
        units, priority = dice.randint(1, config.most), dice.randrange(1_000_000)
        rows = [(units, priority)] if change % 7 else []
        rollup = _rollup(f"cluster-{cluster:03}", rows)
        self._inbox.append(ev.RollupReceived(cluster + 1, rollup.cluster, self.now, rollup))

    def _step(self, wanted: ev.RunStep) -> None:
        result = take_step(self._engine, wanted)
        self._inbox.append(ev.StepDone(wanted.step, result))

    def _count(self, counted: ev.Count) -> None:
        if counted.metric == ACTIONS:
            self.actions[counted.labels[0]] += int(counted.amount)

    def _pump(self) -> None:
        inbox, handle = self._inbox, self.core.handle
        while inbox:
            self._carry_out(handle(inbox.popleft(), self.now))

    def _carry_out(self, instructions: list[ev.Instruction]) -> None:
        perform = self._perform
        for instruction in instructions:
            action = perform.get(type(instruction))
            if action is not None:
                action(instruction)


def run_soak(
    config: SoakConfig,
    engine: Callable[[], Any],
    progress: Callable[[float], None] | None = None,
    each: Callable[[float], None] | None = None,
) -> SoakReport:
    """Play a soak to its end and judge it; `each` hears how many seconds every cycle took."""
    soak = Soak(config, engine)
    early = 0.0
    began, worked = time.perf_counter(), time.process_time()
    with as_when_serving():
        for number in range(config.cycles):
            begin = time.perf_counter()
            soak.cycle(number)
            if each is not None:
                each(time.perf_counter() - begin)
            if number % config.check_every == 0:
                soak.core.validate()
                if number <= config.cycles // 10:
                    early = megabytes()
                if progress is not None:
                    progress(number / config.cycles)
    seconds, cpu = time.perf_counter() - began, time.process_time() - worked
    soak.settle()
    gc.collect()
    late = megabytes()
    leaked = soak.leaked()
    states = Counter(record.state.label for record in soak.provider.machines.values())
    return SoakReport(
        protocol="inline",
        config=asdict(config),
        seconds=round(seconds, 3),
        cpu_seconds=round(cpu, 3),
        cycles=config.cycles,
        actions=dict(sorted(soak.actions.items())),
        machines=len(soak.provider.machines),
        states=dict(sorted(states.items())),
        leaked=leaked,
        megabytes_early=early,
        megabytes_late=late,
        passed=not leaked and stays_flat(early, late),
    )


def stays_flat(early: float, late: float) -> bool:
    """Interned tables double as they fill: flat means that the last nine tenths add little to the first."""
    return late <= early * 1.25 + 32


def _machines(config: SoakConfig) -> list[ev.ListedMachine]:
    metal = Shape("inline", "soak-instance", "us-east-1a", int(CapacityType.BARE_METAL), 0.0, 0.0, Resources({GPU: 1}))
    rented = replace(metal, capacity_type=int(CapacityType.ON_DEMAND), price=6.0, probability=0.05)
    idle = [
        ev.ListedMachine(f"idle-{n:05}", MachineState.IDLE, metal, host=f"host-idle-{n:05}") for n in range(config.idle)
    ]
    return idle + [
        ev.ListedMachine(f"spec-{n:05}", MachineState.SPECULATIVE, rented) for n in range(config.speculative)
    ]


def _rollup(cluster: str, rows: list[tuple[int, int]]) -> Rollup:
    profiles = [Profile([], [], priority, _INTERRUPTION, _RECLAMATION) for _, priority in rows]
    count = len(rows)
    units = np.array([units for units, _ in rows], np.int64).reshape(count, 1)
    return Rollup(cluster, profiles, (), (GPU,), _FIRST[:count], _NO_GROUP[:count], units, _ONE[:count])


def megabytes() -> float:
    """Resident memory now; 0 where the system does not tell."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return 0.0
    return round(int(statm.read_text().split()[1]) * 4096 / 2**20, 1)
