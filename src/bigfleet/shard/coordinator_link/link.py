"""The shard's line to the coordinator: reports out; ownership, rails and instructions in. Never in the hot path.

Everything here may fail or be absent for ever and the shard goes on. A coordinator of an older term is not listened to;
an instruction is carried out once, however often it arrives, and its outcome is told until a report got through.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import grpc
import structlog

from bigfleet.model.names import REDIRECT
from bigfleet.shard.contract import events as ev
from bigfleet.wire import coordinator_pb2, coordinator_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bigfleet.shard.telemetry.metrics import ShardMetrics

log = structlog.get_logger("bigfleet.shard.coordinator_link")

CAPABILITIES = ("ownership-table", "transfers", "rails")
REPORT_SECONDS = 10.0
DEADLINE_SECONDS = 10.0
SHORTEST_PAUSE_SECONDS = 1.0
REMEMBERED_INSTRUCTIONS = 10_000
RELEASE_SECONDS = 30.0

_ACK = coordinator_pb2.InstructAck
# The donor has let go: from here on only the recipient may act.
_LET_GO = (coordinator_pb2.OwnershipTransfer.PHASE_RELEASED, coordinator_pb2.OwnershipTransfer.PHASE_ADOPTED)


class Poster(Protocol):
    def post(self, event: ev.Event) -> None: ...

    def ask(self, event: ev.Event) -> asyncio.Future[None]: ...


@dataclass(frozen=True, slots=True)
class Standing:
    """What a report says about the shard besides who it is; rendered when a report is due."""

    summary: coordinator_pb2.ShardSummary
    shortfalls: Sequence[coordinator_pb2.Shortfall]
    clusters: Sequence[coordinator_pb2.ReportedCluster]
    ownership_version: int = 0


@dataclass(slots=True)
class _Memory:
    """What the link knows between two reports."""

    term: int = 0
    reports: int = 0
    acks: list[coordinator_pb2.InstructAck] = field(default_factory=list)
    done: OrderedDict[str, coordinator_pb2.InstructAck] = field(default_factory=OrderedDict)
    domains: dict[tuple[str, str], None] = field(default_factory=dict)
    released: dict[str, asyncio.Future[tuple[str, ...]]] = field(default_factory=dict)


class CoordinatorLink:
    """Reports for ever; `run` never raises for anything a coordinator does."""

    def __init__(
        self,
        addresses: Sequence[str],
        dial: Callable[[str], grpc.aio.Channel],
        poster: Poster,
        standing: Callable[[], Standing],
        metrics: ShardMetrics,
        *,
        shard_id: str,
        epoch: int,
        advertise: str,
        interval: float = REPORT_SECONDS,
        deadline: float = DEADLINE_SECONDS,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._addresses = list(addresses)
        self._dial = dial
        self._poster = poster
        self._standing = standing
        self._metrics = metrics
        self._shard_id = shard_id
        self._epoch = epoch
        self._advertise = advertise
        self._interval = interval
        self._deadline = deadline
        self._clock = clock
        self._memory = _Memory()
        self._soon = asyncio.Event()
        self._at = 0
        self._address = self._addresses[0]
        self._channel: grpc.aio.Channel | None = None
        self._log = log.bind(component="coordclient", shard_id=shard_id)

    @property
    def term(self) -> int:
        """Highest term seen."""
        return self._memory.term

    def report_soon(self) -> None:
        """Something cannot wait for the next interval."""
        self._soon.set()

    def released(self, released: ev.TransferAnswered) -> None:
        """The core let machines go; what the instruction that asked for them is answered with."""
        waiting = self._memory.released.pop(released.transfer, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(released.machines)

    async def run(self) -> None:
        """Report now, then every interval or when asked, until cancelled."""
        self._log.info("coord client started", addr=self._address)
        try:
            while True:
                self._soon.clear()
                await self.report()
                await asyncio.sleep(min(SHORTEST_PAUSE_SECONDS, self._interval))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, self._interval - SHORTEST_PAUSE_SECONDS)):
                        await self._soon.wait()
        finally:
            self._log.info("coord client stopped")
            if self._channel is not None:
                await self._channel.close(None)

    async def report(self) -> bool:
        """One report and what its answer asks for; False when it did not get through."""
        memory = self._memory
        memory.reports += 1
        acks, memory.acks = memory.acks, []
        try:
            answer = await self._sent(acks)
        except grpc.aio.AioRpcError as error:
            memory.acks = acks + memory.acks
            self._metrics.count("coordinator_reports_total", ("failed",))
            self._log.warning("ReportShard failed", addr=self._address, code=error.code().name, err=error.details())
            await self._turn_elsewhere(error)
            return False
        self._metrics.count("coordinator_reports_total", ("ok",))
        await self._heed(answer)
        return True

    async def _sent(self, acks: list[coordinator_pb2.InstructAck]) -> coordinator_pb2.ReportAck:
        if self._channel is None:
            self._channel = self._dial(self._address)
        standing = self._standing()
        report = coordinator_pb2.ShardReport(
            shard_id=self._shard_id,
            cycle=self._memory.reports,
            timestamp_unix_nanos=self._clock(),
            shard_epoch=self._epoch,
            summary=standing.summary,
            shortfalls=standing.shortfalls,
            instruction_acks=acks,
            shard_address=self._advertise,
            clusters=standing.clusters,
            capabilities=CAPABILITIES,
            ownership_version=standing.ownership_version,
            highest_term=self._memory.term,
        )
        stub = coordinator_pb2_grpc.CoordinatorStub(self._channel)
        answer: coordinator_pb2.ReportAck = await stub.ReportShard(report, timeout=self._deadline)
        return answer

    async def _turn_elsewhere(self, error: grpc.aio.AioRpcError) -> None:
        """A follower may name the leader; otherwise the next configured address has its turn."""
        trailers: Any = error.trailing_metadata() or ()
        hint = next((value for key, value in trailers if key == REDIRECT), "")
        if hint:
            target = str(hint)
            self._soon.set()
        elif len(self._addresses) > 1 or self._address not in self._addresses:
            self._at = (self._at + 1) % len(self._addresses)
            target = self._addresses[self._at]
        else:
            return
        if target != self._address:
            self._log.info("coordinator address changed", addr=target)
            old, self._channel, self._address = self._channel, None, target
            if old is not None:
                await old.close(None)

    async def _heed(self, answer: coordinator_pb2.ReportAck) -> None:
        if not self._accept(answer.coordinator_term):
            self._log.warning(
                "coordinator term validation failed", term=answer.coordinator_term, highest=self._memory.term
            )
            return
        if answer.coordinator_term:
            self._poster.post(ev.TermSeen(answer.coordinator_term))
        if answer.HasField("ownership"):
            await self._poster.ask(self._ownership(answer))
        if answer.HasField("rails"):
            self._poster.post(
                ev.RailsSet(
                    answer.rails.actuation_paused,
                    answer.rails.dry_run,
                    answer.rails.set_by or "coordinator",
                    answer.rails.reason,
                    from_coordinator=True,
                )
            )
        for instruction in answer.instructions:
            if instruction.instruction_id:
                self._memory.acks.append(await self._obey(instruction))

    def _accept(self, term: int) -> bool:
        """Term 0 says nothing; a lower one than seen before is a coordinator that does not know it was replaced."""
        if 0 < term < self._memory.term:
            return False
        self._memory.term = max(self._memory.term, term)
        self._metrics.publish("coordinator_term", self._memory.term)
        return True

    async def _obey(self, instruction: coordinator_pb2.CoordinatorInstruction) -> coordinator_pb2.InstructAck:
        name = instruction.instruction_id
        known = self._memory.done.get(name)
        if known is not None:
            return _ACK(
                instruction_id=name,
                outcome=_ACK.OUTCOME_ACCEPTED,
                reason="duplicate-redelivery",
                machine_ids=known.machine_ids,
            )
        if instruction.coordinator_term < self._memory.term:
            return _ACK(
                instruction_id=name,
                outcome=_ACK.OUTCOME_REJECTED_STALE,
                reason=f"term {instruction.coordinator_term} is below {self._memory.term}",
            )
        try:
            ack = await self._carried_out(instruction)
        except TimeoutError:
            return _ACK(instruction_id=name, outcome=_ACK.OUTCOME_FAILED, reason="the shard did not answer in time")
        if ack.outcome == _ACK.OUTCOME_ACCEPTED:
            self._memory.done[name] = ack
            if len(self._memory.done) > REMEMBERED_INSTRUCTIONS:
                self._memory.done.popitem(last=False)
        return ack

    async def _carried_out(self, instruction: coordinator_pb2.CoordinatorInstruction) -> coordinator_pb2.InstructAck:
        name = instruction.instruction_id
        machines: tuple[str, ...] = ()
        kind = instruction.WhichOneof("payload")
        if kind == "assign_domain":
            domain = instruction.assign_domain
            self._memory.domains[domain.topology_key, domain.topology_value] = None
            await self._poster.ask(self._assigned())
        elif kind == "unassign_domain":
            domain_gone = instruction.unassign_domain
            self._memory.domains.pop((domain_gone.topology_key, domain_gone.topology_value), None)
            await self._poster.ask(self._assigned())
        elif kind == "reassign_speculative":
            machines = await self._let_go(
                instruction.reassign_speculative.selector, instruction.reassign_speculative.transfer_id, True
            )
        elif kind == "transfer_ownership":
            transfer = instruction.transfer_ownership
            if transfer.from_shard_id in ("", self._shard_id):
                machines = await self._let_go(transfer.selector, transfer.transfer_id, False)
        elif kind == "cross_shard_drain":
            machines = await self._drained(name, instruction.cross_shard_drain)
        else:
            return _ACK(instruction_id=name, outcome=_ACK.OUTCOME_REJECTED_INVALID, reason="unknown payload")
        return _ACK(instruction_id=name, outcome=_ACK.OUTCOME_ACCEPTED, machine_ids=machines)

    async def _let_go(
        self, selector: coordinator_pb2.MachineSelector, transfer: str, speculative: bool
    ) -> tuple[str, ...]:
        """Ask the core for machines; a coordinator that names no transfer only keeps books, as the reference does."""
        if not transfer or not selector.count:
            return ()
        return await self._answered(
            transfer, ev.TransferAsked(transfer, selector.count, selector.instance_type, selector.zone, speculative)
        )

    async def _drained(self, instruction: str, wanted: coordinator_pb2.CrossShardDrain) -> tuple[str, ...]:
        """Ask the core to drain machines; it says which ones it drains."""
        selector, name = wanted.selector, wanted.transfer_id or instruction
        if not selector.count and not wanted.machine_ids:
            return ()
        asked = ev.DrainAsked(
            name,
            wanted.preemptor_priority,
            selector.count,
            selector.instance_type,
            selector.zone,
            tuple(wanted.machine_ids),
        )
        return await self._answered(name, asked)

    async def _answered(self, transfer: str, event: ev.Event) -> tuple[str, ...]:
        waiting = self._memory.released.setdefault(transfer, asyncio.get_running_loop().create_future())
        self._poster.post(event)
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                return await waiting
        finally:
            self._memory.released.pop(transfer, None)

    def _assigned(self) -> ev.OwnershipReceived:
        """The domains given one by one, by a coordinator that knows no tables; none means everything."""
        domains = tuple(sorted(self._memory.domains))
        keys = tuple(sorted({key for key, _ in domains}))
        return ev.OwnershipReceived(self._memory.term, 0, domains, keys, default_owner=not domains)

    def _ownership(self, answer: coordinator_pb2.ReportAck) -> ev.OwnershipReceived:
        table = answer.ownership
        mine: list[tuple[str, str]] = []
        elsewhere: list[tuple[str, str]] = []
        for domain in table.domains:
            pair = (domain.topology_key, domain.topology_value)
            (mine if domain.shard_id == self._shard_id else elsewhere).append(pair)
        granted: list[str] = []
        withheld: list[str] = []
        for transfer in table.transfers:
            if transfer.phase not in _LET_GO:
                continue
            if transfer.to_shard_id == self._shard_id:
                granted.extend(transfer.machine_ids)
            elif transfer.from_shard_id == self._shard_id:
                withheld.extend(transfer.machine_ids)
        bound = tuple(sorted(entry.cluster_id for entry in answer.bindings if entry.shard_id == self._shard_id))
        return ev.OwnershipReceived(
            term=table.coordinator_term or answer.coordinator_term,
            version=table.version,
            domains=tuple(sorted(mine)),
            keys=tuple(table.keys),
            granted=tuple(granted),
            withheld=tuple(withheld),
            assigned_elsewhere=tuple(sorted(elsewhere)),
            default_owner=table.default_shard_id == self._shard_id,
            clusters=bound if answer.bindings else None,
            referrals=tuple(
                sorted(
                    (entry.cluster_id, entry.shard_address)
                    for entry in answer.bindings
                    if entry.shard_id != self._shard_id and entry.shard_address
                )
            ),
        )
