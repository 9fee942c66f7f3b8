"""Shards of the endurance run: some only report, some have demand that comes and goes and hand machines to each other.

They keep the coordinator's contract and nothing else of a shard: a machine is let go before it is named, and it is
whose table says so. So a bounded set of machines moves for as long as the run lasts.
"""

from __future__ import annotations

from bench.coordinator.reports import report
from bigfleet.wire import coordinator_pb2 as pb
from bigfleet.wire import provider_pb2

KIND, PROVIDER = "moving", "aws-eu"
AT_HOME, WANTED = 4, 6
SWING_SECONDS = 90.0
_SIZE = {"cpu": "32", "memory": "128Gi"}


class Reporting:
    """A shard that is short of what nobody has; only its cycle and its table's version change."""

    def __init__(self, number: int, shortfalls: int, types: int) -> None:
        self._message = report(number, shortfalls, types)

    def next(self, now: float) -> bytes:
        self._message.cycle += 1
        return self._message.SerializeToString()

    def hear(self, answer: pb.ReportAck) -> None:
        if answer.HasField("ownership"):
            self._message.ownership_version = answer.ownership.version

    @property
    def machines(self) -> frozenset[str]:
        return frozenset()


class Moving(Reporting):
    """A shard that half of the time needs more machines than it has, and half of the time none."""

    def __init__(self, number: int, shortfalls: int, types: int) -> None:
        super().__init__(number, shortfalls, types)
        self._id = self._message.shard_id
        self._base = self._message.SerializeToString()
        self._phase = number % 2
        self._home = frozenset(f"{self._id}-{each}" for each in range(AT_HOME))
        self._named: dict[str, str] = {}
        self._proposed: frozenset[str] = frozenset()
        self._let_go: dict[str, tuple[str, ...]] = {}
        self._acks: dict[str, pb.InstructAck] = {}
        self._told: tuple[str, ...] = ()
        self._short = False
        self.given = 0

    @property
    def machines(self) -> frozenset[str]:
        """Those it would act on."""
        mine = {each for each in self._home if each not in self._named}
        mine |= {machine for machine, owner in self._named.items() if owner == self._id}
        return frozenset(mine.difference(*self._let_go.values()))

    def next(self, now: float) -> bytes:
        self._short = int(now / SWING_SECONDS + self._phase) % 2 == 0
        cycle, version = self._message.cycle + 1, self._message.ownership_version
        made = self._message = pb.ShardReport.FromString(self._base)
        made.cycle, made.ownership_version = cycle, version
        made.capabilities.append("arrivals")
        made.instruction_acks.extend(self._acks.values())
        self._told = tuple(self._acks)
        have = len(self.machines)
        made.summary.per_instance_type_counts[KIND] = have
        if not self._short and have:
            cell = made.summary.free_cells.add(instance_type=KIND, zone="zone-m", count=have, provider=PROVIDER)
            cell.state, cell.price_per_hour = provider_pb2.MACHINE_STATE_IDLE, 1.0
            cell.allocatable.update(_SIZE)
        if self._short and have < WANTED:
            short = made.shortfalls.add(fingerprint=KIND, priority=1000, age_seconds=90, units=WANTED - have)
            short.min_unit.update(_SIZE)
            short.requirements.add(key="node.kubernetes.io/instance-type", operator=1, values=[KIND])
        return made.SerializeToString()

    def hear(self, answer: pb.ReportAck) -> None:
        super().hear(answer)
        for told in self._told:
            self._acks.pop(told, None)
        if answer.HasField("ownership"):
            self._take(answer.ownership)
        for each in answer.instructions:
            if each.WhichOneof("payload") == "transfer_ownership":
                self._acks[each.instruction_id] = self._answer(each.instruction_id, each.transfer_ownership)

    def _take(self, table: pb.OwnershipTable) -> None:
        proposed = pb.OwnershipTransfer.PHASE_PROPOSED
        self._proposed = frozenset(each.transfer_id for each in table.transfers if each.phase == proposed)
        self._named = {
            machine: each.to_shard_id
            for each in table.transfers
            if each.phase != proposed
            for machine in each.machine_ids
        }
        self._let_go = {name: machines for name, machines in self._let_go.items() if name in self._proposed}

    def _gives(self, machine: str, instance_type: str) -> bool:
        """Whether it is of the kind that is asked for."""
        return instance_type == KIND

    def _answer(self, name: str, asked: pb.TransferOwnership) -> pb.InstructAck:
        chosen = self._let_go.get(asked.transfer_id)
        if chosen is None and asked.transfer_id not in self._proposed:
            return pb.InstructAck(instruction_id=name, outcome=pb.InstructAck.OUTCOME_FAILED, reason="not proposed")
        if chosen is None:
            mine = sorted(each for each in self.machines if self._gives(each, asked.selector.instance_type))
            chosen = () if self._short else tuple(mine[: asked.selector.count])
            self.given += len(chosen)
            if chosen:
                self._let_go[asked.transfer_id] = chosen
        return pb.InstructAck(
            instruction_id=name, outcome=pb.InstructAck.OUTCOME_ACCEPTED, machine_ids=chosen, provider=PROVIDER
        )
