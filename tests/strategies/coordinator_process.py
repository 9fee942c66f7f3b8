"""A coordinator in this process on real sockets, and shards that speak to it as the wire does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from bigfleet.coordinator.core.policy import Policy
from bigfleet.coordinator.server.process import CoordinatorProcess
from bigfleet.coordinator.server.settings import CoordinatorSettings
from bigfleet.transport import PLAINTEXT, TlsFiles, channel
from bigfleet.wire import coordinator_pb2 as pb
from bigfleet.wire import coordinator_pb2_grpc

Ack = pb.InstructAck
OURS = ("ownership-table", "transfers", "rails")


@dataclass
class Asked:
    """A running coordinator and a stub to it."""

    process: CoordinatorProcess
    stub: Any

    @property
    def address(self) -> str:
        return self.process.address

    @property
    def tables(self) -> Any:
        assert self.process.replica.tenure is not None
        return self.process.replica.tenure.state.tables


@asynccontextmanager
async def coordinator(
    folder: Path, *, tls: TlsFiles = PLAINTEXT, caller: TlsFiles = PLAINTEXT, **settings: Any
) -> AsyncIterator[Asked]:
    """A coordinator that leads, with planning left to the test unless an interval is given."""
    made = CoordinatorSettings(
        listen="127.0.0.1:0",
        metrics_addr="0",
        data_dir=folder,
        tls=tls,
        **{"rebalance_seconds": 0.0, "policy": Policy(), "shutdown_grace": 0.5, **settings},
    )
    async with CoordinatorProcess.opened(made) as process:
        stop = asyncio.Event()
        serving = asyncio.create_task(process.serve(stop))
        try:
            while process.replica.tenure is None:
                assert not serving.done(), serving.result()
                await asyncio.sleep(0.01)
            async with channel(process.address, tls=caller) as opened:
                yield Asked(process, coordinator_pb2_grpc.CoordinatorStub(opened))
        finally:
            stop.set()
            await serving


@dataclass
class Peer:
    """A shard as the coordinator sees one. Obeys as the reference does: acks with the report after the instruction."""

    stub: Any
    id: str
    address: str = ""
    epoch: int = 1
    capabilities: tuple[str, ...] = ()
    cycle: int = 0
    version: int = 0
    term: int = 0
    acks: list[pb.InstructAck] = field(default_factory=list)
    domains: set[tuple[str, str]] = field(default_factory=set)
    answer: pb.ReportAck = field(default_factory=pb.ReportAck)

    async def report(self, **fields: Any) -> pb.ReportAck:
        self.cycle += 1
        acks, self.acks = self.acks, []
        report = pb.ShardReport(
            **{
                "shard_id": self.id,
                "cycle": self.cycle,
                "shard_epoch": self.epoch,
                "shard_address": self.address or f"{self.id}.example:7780",
                "capabilities": self.capabilities,
                "ownership_version": self.version,
                "highest_term": self.term,
                "instruction_acks": acks,
                **fields,
            }
        )
        self.answer = await self.stub.ReportShard(report)
        self.term = max(self.term, self.answer.coordinator_term)
        return self.answer

    async def obey(self, **fields: Any) -> pb.ReportAck:
        """Report, take the table, and carry out assignments; their acks go with the next report."""
        answer = await self.report(**fields)
        if answer.HasField("ownership"):
            self.version = answer.ownership.version
        for instruction in answer.instructions:
            kind = instruction.WhichOneof("payload")
            payload = getattr(instruction, kind)
            if kind in ("assign_domain", "unassign_domain"):
                domain = (payload.topology_key, payload.topology_value)
                (self.domains.add if kind == "assign_domain" else self.domains.discard)(domain)
                self.ack(instruction.instruction_id)
        return answer

    def ack(self, name: str, *machines: str, outcome: Any = Ack.OUTCOME_ACCEPTED, reason: str = "") -> None:
        self.acks.append(Ack(instruction_id=name, outcome=outcome, reason=reason, machine_ids=machines))


def code(error: Any) -> grpc.StatusCode:
    found: grpc.StatusCode = error.value.code()
    return found
