"""One leadership of this replica, from the election to its end: state, leader's memory, commits, planning.

Everything in here is thrown away when it ends; the next tenure starts from what the store holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import structlog

from bigfleet.coordinator.core import commands as do
from bigfleet.coordinator.core.commands import Refused
from bigfleet.coordinator.core.leader import Leader
from bigfleet.coordinator.core.policy import SECOND
from bigfleet.coordinator.core.state import Applied, State
from bigfleet.coordinator.server.answers import Answers
from bigfleet.coordinator.server.codec import report_of, standing_of
from bigfleet.coordinator.server.committer import Committer
from bigfleet.coordinator.server.telling import tell_drain, tell_transfer, transfer_of
from bigfleet.coordinator.snapshots.document import Snapshot, snapshot_of
from bigfleet.wire import coordinator_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bigfleet.coordinator.core.policy import Policy
    from bigfleet.coordinator.core.reports import Standing
    from bigfleet.coordinator.server.metrics import CoordinatorMetrics
    from bigfleet.coordinator.stores.store import Store

log = structlog.get_logger(__name__)

HOUSEKEEPING_SECONDS = 1.0
# Planning has the loop for so long at a time, leaves it for longer, and takes a tenth of a processor at most: a fleet
# of thousands of shards has more to report than to move.
SLICE_SECONDS = 0.001
BREATH_SECONDS = 0.003
PLANNING_SHARE = 0.1


class Tenure:
    """Leads until the store says somebody else may."""

    def __init__(self, state: State, term: int, store: Store, policy: Policy, metrics: CoordinatorMetrics) -> None:
        self.state = state
        self.leader = Leader(state, term, policy)
        self.store = store
        self.answers = Answers(self.leader)
        self.committer = Committer(self.state, store, metrics)
        self._metrics = metrics
        # Reports stay as they came; most are never looked at again.
        self.raw: dict[int, tuple[bytes, int]] = {}
        self._read: dict[int, tuple[bytes, Standing]] = {}
        self._raising = asyncio.Lock()
        self.pending: dict[str, float] = {}
        # Shortfalls old enough to be helped, by shard; set when one is new, so that it need not wait for the interval.
        self._old_enough: dict[str, frozenset[str]] = {}
        self._wanted = asyncio.Event()
        self._pause = _Pause()

    @property
    def term(self) -> int:
        return self.leader.term

    async def run(self, rebalance_seconds: float) -> None:
        """Until leadership is lost or a part fails; a failed commit is a lost leadership."""
        parts = [
            asyncio.create_task(self.committer.run()),
            asyncio.create_task(self.store.lost()),
            asyncio.create_task(self._keep_house()),
        ]
        if rebalance_seconds > 0:
            parts.append(asyncio.create_task(self._rebalance(rebalance_seconds)))
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()
        finally:
            self.committer.broken.set()
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    async def report(self, raw: bytes, message: coordinator_pb2.ShardReport, now: int) -> bytes:
        """Take a shard's report and answer it; every commit it leads to is durable before the answer."""
        report = report_of(message)
        if report.highest_term > self.term:
            await self._outgrow(report.highest_term)
        await self._all(self.leader.admit(report, now), now)
        if report.shard not in self.state.tables.shards:
            await self.submit(do.AddShard(report.shard, report.address, now, report.tables))
        counts, commands = self.leader.hear(report, now)
        if counts:
            self._look_for_new(message)
            self.raw[self.state.tables.shards[report.shard].generation] = (raw, now)
        await self._all(commands, now)
        await self.committer.settled()
        body, waiting = self.answers.answer(report, counts, now)
        self.pending[report.shard] = float(waiting)
        return body

    async def submit(self, command: do.Command) -> Applied:
        return await self.committer.submit(command)

    async def snapshot(self) -> Snapshot:
        """Everything committed, at one revision. Rendered in a thread: a large state takes longer than a beat."""
        await self.committer.settled()
        rows, term, now = self.state.tables.rows(), self.term, time.time_ns()
        return await asyncio.to_thread(lambda: snapshot_of(State(rows), term, now))

    async def standings(self) -> dict[int, Standing]:
        """What registered shards reported last, read where it is new."""
        pause = self._pause
        for generation in [each for each in self._read if each not in self.state.tables.generations]:
            del self._read[generation]
            self.raw.pop(generation, None)
        for generation, (raw, _) in list(self.raw.items()):
            known = self._read.get(generation)
            if known is None or known[0] is not raw:
                self._read[generation] = (raw, standing_of(coordinator_pb2.ShardReport.FromString(raw)))
                await pause.if_long()
        return {generation: standing for generation, (_, standing) in self._read.items()}

    async def plan(self, now: int) -> None:
        """Look once for capacity to move, without keeping reports waiting."""
        begin, pause = time.perf_counter(), self._pause
        pause.begin()
        standings = await self.standings()
        planning = self.leader.planning(standings, now)
        for _ in planning.steps():
            await pause.if_long()
        made = planning.plan
        self._metrics.observe("plan_seconds", time.perf_counter() - begin)
        self._metrics.count("moves_total", "preempt", len(made.drains))
        for transfer in made.transfers:
            self._metrics.count("moves_total", "slots" if transfer.speculative else "idle")
        for drain in made.drains:
            tell_drain(self.state.tables, drain)
        await self._all(self.leader.concluded(made, now), now)
        await self._all(self.leader.slices(standings, now), now)

    async def _all(self, commands: Iterable[do.Command], now: int) -> None:
        for command in commands:
            transfer = transfer_of(self.state.tables, command)
            try:
                applied = await self.committer.submit(command)
                if transfer is not None and applied.rows:
                    tell_transfer(self.state.tables, command, transfer)
            except Refused as refusal:
                log.warning("command refused", command=type(command).__name__, err=str(refusal))
                await self._all(self.leader.refused(command, now), now)
            if isinstance(command, do.CallOff):
                self._metrics.count("called_off_total")

    async def _outgrow(self, mark: int) -> None:
        """Shards have seen a higher term: from a state that was lost, or a restore. Ours must pass it."""
        async with self._raising:
            if mark > self.term:
                self.leader.term = await self.store.raise_term(mark)
                log.warning("term raised above a shard's mark", mark=mark, term=self.term)

    async def _keep_house(self) -> None:
        while True:
            await self._all(self.leader.housekeeping(time.time_ns()), time.time_ns())
            await asyncio.sleep(0.01 if self.state.tables.dead else HOUSEKEEPING_SECONDS)

    def _look_for_new(self, message: coordinator_pb2.ShardReport) -> None:
        after = self.leader.policy.after / SECOND
        old = frozenset(each.fingerprint for each in message.shortfalls if each.age_seconds >= after)
        if not old <= self._old_enough.get(message.shard_id, frozenset()):
            self._wanted.set()
        self._old_enough[message.shard_id] = old

    async def _rebalance(self, seconds: float) -> None:
        """At every interval, and between two of them once when a shortfall has become old enough."""
        while True:
            self._wanted.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wanted.wait()
            early = self._wanted.is_set()
            await self.plan(time.time_ns())
            rest = self._pause.spent / PLANNING_SHARE - seconds
            await asyncio.sleep(max(rest, seconds if early else 0.0))


class _Pause:
    """Lets others have the loop once this has had it for a while."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """`spent` counts from here."""
        self._since = time.perf_counter()
        self.spent = 0.0

    async def if_long(self) -> None:
        had = time.perf_counter() - self._since
        if had > SLICE_SECONDS:
            self.spent += had
            await asyncio.sleep(BREATH_SECONDS)
            self._since = time.perf_counter()
