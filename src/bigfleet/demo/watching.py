"""What the demonstration knows of its shard: only what any reader may ask over `ShardRead`, as plain values.

A `Sight` is one look. It derives what a screen shows and what "demand is met" means: the last decision satisfied every
need, and no machine is still on its way to the clusters.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

import grpc

from bigfleet.demo.workloads import workload_of
from bigfleet.engine.results import UnmetReason
from bigfleet.model.billing import ALREADY_PAID, billed_per_hour
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.model.penalty import told_dollars
from bigfleet.model.resources import Resources
from bigfleet.wire import shardread_pb2, shardread_pb2_grpc

LONGEST_ACTION = 30_000_000_000  # nanoseconds; far more than an action of the demonstration takes
ARRIVING = frozenset({MachineState.CREATING, MachineState.CONFIGURING})
ACQUISITIONS = frozenset({shardread_pb2.ACTION_KIND_BOOTSTRAP, shardread_pb2.ACTION_KIND_PROVISION})


@dataclass(frozen=True, slots=True)
class SeenMachine:
    id: str
    kind: CapacityType
    instance_type: str
    zone: str
    state: MachineState
    cluster: str
    price: float
    has_host: bool = True
    picked: bool = False
    """Some need was promised it, and it is not there yet."""
    risk: float = 0.0
    """The chance that it is interrupted within an hour."""
    serves: str = ""
    """Fingerprint of the need it was bound for."""
    owned: bool = True
    """Whether the shard that lists it may act on it."""

    @property
    def dollars(self) -> float:
        """What it costs per hour now."""
        return billed_per_hour(self.kind, self.price, has_host=self.has_host)


@dataclass(frozen=True, slots=True)
class SeenNeed:
    cluster: str
    fingerprint: str
    group: str
    priority: int
    interruption: float
    wanted: Resources
    satisfied: bool
    missing: Resources
    reason: UnmetReason | None
    """Why it is not satisfied; None where the reader's words are newer than ours."""
    workload: str = ""
    claimed: int = 0
    """Machines that count for it after the last decision."""
    credited: int = 0
    """Those of them that its cluster had before."""
    idle: int = 0
    for_sale: int = 0
    in_use: int = 0
    """Machines that would fit, whoever has them; known of unmet needs only."""

    @property
    def name(self) -> str:
        owner = f"{self.cluster}'" if self.cluster.endswith("s") else f"{self.cluster}'s"
        return f"{owner} {self.workload}" if self.workload else self.cluster


@dataclass(frozen=True, slots=True)
class SeenAction:
    """One action that ended, and when. `fingerprint` is the need it served, also when it took another's machine."""

    at: int
    kind: int
    machine: str
    cluster: str
    fingerprint: str
    outcome: str
    error: str
    cycle: int = 0


@dataclass(frozen=True)
class Sight:
    """One look at the shard."""

    cycle: int = 0
    decided_at: int = 0
    machines: tuple[SeenMachine, ...] = ()
    needs: tuple[SeenNeed, ...] = ()
    actions: tuple[SeenAction, ...] = field(default=(), compare=False)
    """Oldest first, and only those no earlier look has shown."""

    @cached_property
    def states(self) -> Counter[tuple[CapacityType, MachineState]]:
        return Counter((machine.kind, machine.state) for machine in self.machines)

    @cached_property
    def dollars(self) -> float:
        return sum(machine.dollars for machine in self.machines)

    @cached_property
    def by_id(self) -> dict[str, SeenMachine]:
        return {machine.id: machine for machine in self.machines}

    @cached_property
    def at_rest(self) -> bool:
        """Nobody has a machine, none is on its way anywhere, and none is rented."""
        resting = (MachineState.IDLE, MachineState.SPECULATIVE)
        return all(
            machine.state in resting and not machine.picked and (machine.kind in ALREADY_PAID or not machine.has_host)
            for machine in self.machines
        )

    def serving(self, cluster: str = "", zone: str = "") -> list[SeenMachine]:
        """Machines that are nodes of a cluster, of one or of all."""
        return [
            machine
            for machine in self.machines
            if machine.state is MachineState.CONFIGURED
            and cluster in ("", machine.cluster)
            and zone in ("", machine.zone)
        ]

    def of(self, cluster: str) -> list[SeenNeed]:
        return [need for need in self.needs if need.cluster == cluster]

    def wanted(self, cluster: str) -> Resources:
        total = Resources.ZERO
        for need in self.of(cluster):
            total = total + need.wanted
        return total

    @property
    def unmet(self) -> list[SeenNeed]:
        return [need for need in self.needs if not need.satisfied]

    @property
    def arriving(self) -> int:
        return sum(machine.picked or machine.state in ARRIVING for machine in self.machines)

    @property
    def moving(self) -> bool:
        """Machines are on their way to a cluster or away from one."""
        return bool(self.arriving) or any(machine.state is MachineState.DRAINING for machine in self.machines)

    @property
    def met(self) -> bool:
        return self.cycle > 0 and not self.unmet and not self.arriving


class Watcher:
    """Looks at one shard again and again."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = shardread_pb2_grpc.ShardReadStub(channel)
        self._newest = 0
        self._shown: dict[tuple[str, int, int], int] = {}

    async def look(self) -> Sight:
        """Everything as of now; needs first, so that machines picked for them are seen on their way."""
        cycle, decided_at, needs = 0, 0, []
        async for frame in self._stub.InspectNeeds(shardread_pb2.InspectNeedsRequest()):
            if frame.HasField("header"):
                cycle, decided_at = frame.header.cycle, frame.header.computed_at_unix_nanos
            else:
                needs.append(_need(frame.need))
        machines = [
            seen_machine(view)
            async for page in self._stub.ListMachines(shardread_pb2.ListMachinesRequest())
            for view in page.machines
        ]
        return Sight(cycle, decided_at, tuple(machines), tuple(needs), tuple(await self._ended()))

    async def _ended(self) -> list[SeenAction]:
        """Actions that ended since the last look. They are listed by when they were decided, so some come late."""
        since = max(0, self._newest - LONGEST_ACTION)
        fresh = []
        async for page in self._stub.ListActions(shardread_pb2.ListActionsRequest(since_unix_nanos=since)):
            for action in map(_action, page.actions):
                known = (action.machine, action.kind, action.at)
                if action.outcome and known not in self._shown:
                    self._shown[known] = action.at
                    fresh.append(action)
        fresh.sort(key=lambda action: action.at)
        if fresh:
            self._newest = max(self._newest, fresh[-1].at)
            oldest = self._newest - 2 * LONGEST_ACTION
            self._shown = {known: at for known, at in self._shown.items() if at >= oldest}
        return fresh


def seen_machine(view: shardread_pb2.MachineView) -> SeenMachine:
    machine = view.machine
    return SeenMachine(
        machine.id,
        CapacityType(machine.capacity_type),
        machine.instance_type,
        machine.zone,
        MachineState(machine.state),
        machine.cluster,
        machine.price_per_hour,
        bool(machine.host.ref),
        view.in_flight in ACQUISITIONS,
        machine.interruption_probability,
        view.assigned_fingerprint,
        view.owned,
    )


def _need(view: shardread_pb2.NeedView) -> SeenNeed:
    need = view.need
    known = {int(reason) for reason in UnmetReason}
    return SeenNeed(
        view.cluster_id,
        view.profile_fingerprint,
        need.group,
        need.priority,
        told_dollars(need.interruption_penalty_bucket, need.interruption_microdollars),
        Resources.parse(need.aggregate_resources, round_up=True),
        view.satisfied,
        Resources.parse(view.residual_deficit.resources, round_up=True),
        UnmetReason(view.unmet_reason) if view.unmet_reason in known else None,
        workload_of(need),
        view.claimed_machine_count,
        view.claimed_machine_count - view.bootstrap_count - view.provision_count,
        view.matching_supply.idle,
        view.matching_supply.speculative,
        view.matching_supply.configured,
    )


def _action(view: shardread_pb2.ActionView) -> SeenAction:
    return SeenAction(
        view.finished_at_unix_nanos,
        view.kind,
        view.machine_id,
        view.cluster_id,
        view.fingerprint,
        view.outcome,
        view.error,
        view.cycle,
    )
