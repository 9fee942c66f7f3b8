"""The setting in which one behaviour runs: its machines, its calls with their transcript, its clock and its dice.

Everything a behaviour does to the provider goes through here, so a failure can show the calls that led to it.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
from google.protobuf.message import Message

from bigfleet.provider.conformance.config import Config, Faults, blob_for, seconds
from bigfleet.provider.conformance.process import run_hook
from bigfleet.provider.conformance.reply import ZERO, Code, Reply, Token
from bigfleet.provider.conformance.states import State
from bigfleet.provider.conformance.target import Target
from bigfleet.provider.conformance.transcript import Exchange, Transcript
from bigfleet.provider.conformance.verdicts import Breach, Skip, SkipKind
from bigfleet.wire import provider_pb2 as pb

if TYPE_CHECKING:
    from bigfleet.provider.conformance.subject import Subject

Borrow = Callable[[State], Awaitable["Subject"]]
Restart = Callable[[], Awaitable[None]]

_unique = itertools.count(1)
_RUN = time.time_ns()


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What probing found the provider able to do."""

    delete: bool = True
    since_revision: bool = True


@dataclass(frozen=True, slots=True)
class Limits:
    """The run's time limits in seconds, already stretched by the multiplier."""

    create: float
    configure: float
    drain: float
    delete: float
    call: float
    boot: float
    window: float
    poll: float

    @staticmethod
    def of(config: Config) -> Limits:
        stretch, t = config.timing.multiplier, config.timing
        return Limits(
            create=seconds(t.create) * stretch,
            configure=seconds(t.configure) * stretch,
            drain=seconds(t.drain) * stretch,
            delete=seconds(t.delete) * stretch,
            call=seconds(t.call) * stretch,
            boot=seconds(t.boot) * stretch,
            window=seconds(t.window),
            poll=seconds(t.poll),
        )

    @property
    def behaviour(self) -> float:
        """The longest any behaviour may take: the busiest makes some twenty full cycles, call by call."""
        return 4 * self.call + 25 * (self.create + self.configure + self.drain + self.delete)

    def to_reach(self, state: State) -> float:
        """How long a machine may take to settle in a state, whichever transition leads there."""
        return {
            State.IDLE: max(self.create, self.drain),
            State.CONFIGURED: self.configure,
            State.SPECULATIVE: self.delete,
        }.get(state, max(self.create, self.configure, self.drain, self.delete))


@dataclass(slots=True)
class Session:
    """A shard's life as a provider sees it: one id, a fresh sequence per call, a higher epoch per restart."""

    shard_id: str
    epoch: int = 1
    sequence: int = 0

    def next(self) -> Token:
        self.sequence += 1
        return Token(self.shard_id, self.epoch, self.sequence)

    def at(self, epoch: int, sequence: int) -> Token:
        return Token(self.shard_id, epoch, sequence)

    def restart(self) -> None:
        self.epoch += 1
        self.sequence = 0


class Trial:
    """One run of one behaviour."""

    def __init__(self, config: Config, target: Target, capabilities: Capabilities, label: str = "trial") -> None:
        self.config = config
        self.target = target
        self.capabilities = capabilities
        self.limits = Limits.of(config)
        self.transcript = Transcript()
        self.rng = random.Random(f"{config.seed}:{label}")
        self.machines: list[Subject] = []
        self.blob = blob_for(config)
        self.borrow: Borrow = _nothing_to_borrow
        self.kill_and_restart: Restart = _cannot_restart
        self.shared: dict[str, Any] = {}
        self.note = ""
        self.command_values: dict[str, str] = {}
        self.provider_log: Callable[[], str] | None = None

    @property
    def machine(self) -> Subject:
        return self.machines[0]

    @property
    def cluster(self) -> str:
        return self.config.cluster

    # --- calls -------------------------------------------------------------------------------------------------

    async def create(
        self, machine_id: str, token: Token = ZERO, connection: int = 0, identity: str | None = None
    ) -> Reply:
        request = pb.CreateRequest(
            machine_id=machine_id, shard_id=token.shard_id, shard_epoch=token.epoch, sequence_number=token.sequence
        )
        return await self._call("Create", request, token.shard_id if identity is None else identity, connection)

    async def configure(
        self,
        machine_id: str,
        token: Token = ZERO,
        *,
        cluster: str | None = None,
        metadata: dict[str, str] | None = None,
        blob: bytes | None = None,
        connection: int = 0,
    ) -> Reply:
        request = pb.ConfigureRequest(
            machine_id=machine_id,
            cluster_id=self.cluster if cluster is None else cluster,
            bootstrap_blob=self.blob if blob is None else blob,
            shard_id=token.shard_id,
            shard_epoch=token.epoch,
            sequence_number=token.sequence,
            shard_metadata=metadata or {},
        )
        return await self._call("Configure", request, token.shard_id, connection)

    async def drain(self, machine_id: str, token: Token = ZERO, *, grace: int = 5, connection: int = 0) -> Reply:
        request = pb.DrainRequest(
            machine_id=machine_id,
            grace_period_seconds=grace,
            shard_id=token.shard_id,
            shard_epoch=token.epoch,
            sequence_number=token.sequence,
        )
        return await self._call("Drain", request, token.shard_id, connection)

    async def delete(self, machine_id: str, token: Token = ZERO, connection: int = 0) -> Reply:
        request = pb.DeleteRequest(
            machine_id=machine_id, shard_id=token.shard_id, shard_epoch=token.epoch, sequence_number=token.sequence
        )
        return await self._call("Delete", request, token.shard_id, connection)

    async def get(self, machine_id: str) -> Reply:
        return await self._call("Get", pb.MachineRef(id=machine_id))

    async def list_reply(self, states: Iterable[State] = (), max_results: int = 0, since: bytes = b"") -> Reply:
        request = pb.ListFilter(max_results=max_results, since_revision=since)
        request.states.extend(int(s) for s in states)  # type: ignore[misc]
        return await self._call("List", request)

    async def listing(self, states: Iterable[State] = (), max_results: int = 0, since: bytes = b"") -> pb.MachineList:
        """A List that must succeed and never repeats an id."""
        reply = (await self.list_reply(states, max_results, since)).accepted("List never fails on a healthy provider")
        answer = reply.exchange.answer
        assert isinstance(answer, pb.MachineList)
        strange = [f"{m.id}: {m.state}" for m in answer.machines if not State.UNSPECIFIED <= m.state <= State.FAILED]
        if strange:
            raise reply.breach(f"unknown machine states {strange[:3]}", "The contract knows eight states, 1 to 8.")
        if len({m.id for m in answer.machines}) != len(answer.machines):
            raise reply.breach("the list repeats a machine id", "A List response never repeats an id.")
        return answer

    async def _call(self, rpc: str, request: Message, shard_id: str = "", connection: int = 0) -> Reply:
        exchange = Exchange(rpc, request)
        self.transcript.add(exchange)
        limit = self.limits.call if rpc != "List" else 4 * self.limits.call
        begun = time.perf_counter()
        code = Code.OK
        try:
            exchange.answer = await getattr(self.target.stub(shard_id, connection), rpc)(request, timeout=limit)
        except grpc.aio.AioRpcError as error:
            code = error.code()
            exchange.details = error.details() or ""
        exchange.code = code.name
        if isinstance(exchange.answer, pb.TransitionAck):
            self.shared.setdefault("operation-ids", set()).add(exchange.answer.operation_id)
        return Reply(exchange, code, time.perf_counter() - begun)

    # --- judging -----------------------------------------------------------------------------------------------

    def require(self, holds: bool, problem: str, contract: str = "") -> None:
        if not holds:
            raise Breach(problem, contract=contract)

    def same_id(self, first: Reply, second: Reply, what: str) -> None:
        """Two acks of one operation must carry one operation id."""
        if first.operation_id != second.operation_id:
            raise second.breach(
                f"{what}: operation id {second.operation_id!r} differs from {first.operation_id!r}",
                "A repeated call with the same machine and target returns the same operation_id; no second transition.",
            )

    def skip(self, reason: str) -> NoReturn:
        """This provider cannot be asked; that counts as pass."""
        raise Skip(reason)

    def lacking(self, reason: str) -> Skip:
        """To raise when the inventory is too small to judge; that leaves the run incomplete."""
        return Skip(reason, SkipKind.INVENTORY)

    # --- shards, ghosts, time ----------------------------------------------------------------------------------

    def shard(self, prefix: str = "s") -> Session:
        """A shard id no earlier run can have used."""
        return Session(f"conf-{prefix}-{_RUN}-{next(_unique)}")

    def ghost(self) -> str:
        """A machine id that does not exist."""
        return f"conformance-ghost-{_RUN}-{next(_unique)}"

    @property
    def faults(self) -> Faults:
        chosen = self.config.fault_map()
        if chosen is None:
            raise Skip("no `faults:` map in the config says how to provoke failures", SkipKind.NOT_CONFIGURED)
        return chosen

    async def hook(self, command: str, machine_id: str) -> None:
        """Run a fault command of the config on one machine."""
        await run_hook(command, {**self.command_values, "machine": machine_id})

    async def fan_out(self, calls: Sequence[Callable[[], Awaitable[Reply]]]) -> list[Reply]:
        """All calls at once, answers in call order."""
        return list(await asyncio.gather(*(call() for call in calls)))


async def _nothing_to_borrow(state: State) -> Subject:
    raise Skip(f"this trial has no pool to take a {state.name} machine from", SkipKind.INVENTORY)


async def _cannot_restart() -> None:
    raise Skip("no start command is configured, so the provider cannot be restarted", SkipKind.NOT_CONFIGURED)
