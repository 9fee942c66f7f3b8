"""A provider as the shard reaches it: six calls with delays, outages and rate limits in front of the virtual fake.

Answers are the shard core's own events. What a refused call means to the shard is decided as the real client and server
decide it. Owns no lifecycle: that is the kit's.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol

from bigfleet.engine.batches import Shape
from bigfleet.model.machine import CallKind, node_labels
from bigfleet.model.resources import MAX_MACHINE_UNITS, Resources
from bigfleet.provider.fake.catalogue import RateLimit
from bigfleet.provider.fake.limits import TokenBucket
from bigfleet.provider.fake.virtual import VirtualProvider
from bigfleet.provider.kit.core.core import Page
from bigfleet.provider.kit.core.events import (
    Acknowledge,
    ConfigureRequested,
    CreateRequested,
    DeleteRequested,
    DrainRequested,
    Refusal,
    Refuse,
    Request,
)
from bigfleet.provider.kit.core.records import MachineRecord, Token
from bigfleet.provider.kit.core.records import Shape as KitShape
from bigfleet.shard.contract import events as ev
from bigfleet.virtual.kernel import SECOND, Duration, Kernel

Answer = Callable[[ev.Event], None]

_FAILURES = {
    Refusal.INVALID: ev.Failure.INVALID,
    Refusal.UNSUPPORTED: ev.Failure.UNIMPLEMENTED,
    Refusal.FENCED: ev.Failure.FENCED,
    Refusal.UNKNOWN: ev.Failure.NOT_FOUND,
    Refusal.OUT_OF_POSITION: ev.Failure.OTHER,
}


class Provider(Protocol):
    """What the shard's host needs of a provider."""

    def call(self, wanted: ev.CallProvider, answer: Answer) -> None: ...
    def list(self, wanted: ev.StartList, answer: Answer) -> None: ...
    def read(self, wanted: ev.StartRead, answer: Answer) -> None: ...


class Translator:
    """Provider records as the shard's decoder would hand them over; each is translated once, from `epoch` on."""

    def __init__(self, provider: str, epoch: int) -> None:
        self._provider = provider
        self._epoch = epoch
        self._shapes: dict[int, tuple[KitShape, Shape]] = {}
        self._machines: dict[str, tuple[MachineRecord, ev.ListedMachine]] = {}

    def shape(self, shape: KitShape) -> Shape:
        known = self._shapes.get(id(shape))
        if known is None or known[0] is not shape:
            known = self._shapes[id(shape)] = (shape, self._made(shape))
        return known[1]

    def machine(self, record: MachineRecord) -> ev.ListedMachine:
        known = self._machines.get(record.id)
        if known is not None and known[0] is record:
            return known[1]
        host = (record.host.ref or record.host.provider) if record.host is not None else ""
        metadata = tuple(sorted(record.metadata.items())) if record.metadata else ()
        shape = self.shape(record.shape)
        taken_at = self._epoch + round(record.interruption_at * SECOND) if record.interruption_at else 0
        listed = ev.ListedMachine(
            record.id, record.state, shape, host, record.cluster, record.last_error, metadata, taken_at
        )
        self._machines[record.id] = (record, listed)
        return listed

    def forget(self, machine: str) -> None:
        self._machines.pop(machine, None)

    def _made(self, shape: KitShape) -> Shape:
        offered = dict(shape.allocatable or shape.resources)
        return Shape(
            provider=self._provider,
            instance_type=shape.instance_type,
            zone=shape.zone,
            capacity_type=int(shape.capacity_type),
            price=shape.price_per_hour,
            probability=shape.interruption_probability,
            allocatable=Resources.parse(offered, round_up=False, limit=MAX_MACHINE_UNITS),
            labels=node_labels(dict(shape.labels), int(shape.capacity_type)),
            taints=tuple(sorted(shape.taints)),
        )


class ProviderPort:
    """RPCs of a virtual provider on the kernel; without a delay they are answered before the call returns."""

    def __init__(
        self,
        name: str,
        kernel: Kernel,
        provider: VirtualProvider,
        translator: Translator,
        delay: Duration | None,
        epoch: int,
        shuffle: random.Random | None = None,
    ) -> None:
        self.name = name
        self.provider = provider
        self.out = False
        self._bucket: TokenBucket | None = None
        self._bare = False
        self._kernel = kernel
        self._translator = translator
        self._inline = delay is None
        self._delay = delay or Duration.fixed(0)
        self._dice = kernel.random_stream(f"rpc/{name}")
        self._epoch = epoch
        self._shuffle = shuffle

    def call(self, wanted: ev.CallProvider, answer: Answer) -> None:
        self._there(lambda: self._back(answer, self._called(wanted)))

    def list(self, wanted: ev.StartList, answer: Answer) -> None:
        began = self._now()
        self._there(lambda: self._back(answer, self._listed(wanted, began)))

    def read(self, wanted: ev.StartRead, answer: Answer) -> None:
        began = self._now()
        self._there(lambda: self._back(answer, self._got(wanted, began)))

    def begin_storm(self, limit: RateLimit, *, bare: bool = False) -> None:
        """From now on calls beyond the limit are refused; `bare` with a code that may mean a stock-out as well."""
        self._bare = bare
        self._bucket = TokenBucket(limit, self._kernel.now / SECOND)

    def end_storm(self) -> None:
        self._bucket = None

    def _called(self, wanted: ev.CallProvider) -> ev.Event:
        problem = self._problem()
        if problem:
            failure = ev.Failure.EXHAUSTED if self._limits else ev.Failure.UNAVAILABLE
            return ev.CallFailed(wanted.op, failure, problem)
        answer = self.provider.request(_request(wanted))
        if isinstance(answer, Acknowledge):
            return ev.CallDone(wanted.op, self._translator.machine(answer.machine))
        assert isinstance(answer, Refuse)
        return ev.CallFailed(wanted.op, _FAILURES[answer.refusal], answer.message)

    def _listed(self, wanted: ev.StartList, began: int) -> ev.Event:
        problem = self._problem()
        if problem:
            return ev.ListFailed(wanted.provider, problem, self._limits)
        page: Page = self.provider.page(since=b"" if wanted.full else wanted.revision)
        records = [self._translator.machine(record) for record in page.machines]
        if self._shuffle is not None:
            self._shuffle.shuffle(records)
        return ev.ListArrived(
            provider=wanted.provider,
            began=began,
            full=page.full,
            complete=True,
            machines=tuple(records),
            removed=tuple(page.removed_ids),
            revision=page.cursor,
        )

    def _got(self, wanted: ev.StartRead, began: int) -> ev.Event:
        problem = self._problem()
        if problem:
            return ev.ReadFailed(wanted.provider, wanted.machine, problem, self._limits)
        record = self.provider.get(wanted.machine)
        found = None if record is None else self._translator.machine(record)
        return ev.MachineRead(wanted.provider, wanted.machine, began, found)

    @property
    def _limits(self) -> bool:
        """Whether a problem is one of too many calls, in the provider's own word."""
        return self._bare and not self.out

    def _problem(self) -> str:
        if self.out:
            return f"provider {self.name} cannot be reached"
        if self._bucket is not None and self._bucket.take(self._kernel.now / SECOND) > 0:
            return f"provider {self.name} asks for fewer calls"
        return ""

    def _there(self, arrive: Callable[[], None]) -> None:
        if self._inline:
            arrive()
        else:
            self._kernel.after(self._delay.sample(self._dice), arrive)

    def _back(self, answer: Answer, event: ev.Event) -> None:
        if self._inline:
            answer(event)
        else:
            self._kernel.after(self._delay.sample(self._dice), lambda: answer(event))

    def _now(self) -> int:
        return self._epoch + self._kernel.now


def _request(wanted: ev.CallProvider) -> Request:
    token = Token(wanted.fence.shard_id, wanted.fence.epoch, wanted.fence.sequence)
    match wanted.kind:
        case CallKind.CREATE:
            return CreateRequested(wanted.machine, token)
        case CallKind.CONFIGURE:
            return ConfigureRequested(wanted.machine, wanted.cluster, wanted.blob, dict(wanted.metadata), token)
        case CallKind.DRAIN:
            return DrainRequested(wanted.machine, wanted.grace_seconds, token)
        case CallKind.DELETE:
            return DeleteRequested(wanted.machine, token)
