"""The commit queue: many commands to a sync, readers never see what is not committed, and failure ends the tenure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from bigfleet.coordinator.core import commands as do
from bigfleet.coordinator.core.commands import Refused
from bigfleet.coordinator.core.records import Row
from bigfleet.coordinator.core.state import State
from bigfleet.coordinator.server.committer import Committer
from bigfleet.coordinator.server.metrics import CoordinatorMetrics
from bigfleet.coordinator.stores.store import NotLeader, StoreError


class Slow:
    """A store whose commits take a moment; only what a commit looks like, nothing else is asked of it."""

    most_rows = 120

    def __init__(self) -> None:
        self.commits: list[int] = []
        self.held: set[str] = set()
        self.broken = False

    async def commit(self, rows: Sequence[Row]) -> None:
        await asyncio.sleep(0.001)
        if self.broken:
            raise StoreError("disk full")
        self.commits.append(len(rows))
        self.held |= {row.key for row in rows if row.table == "shard"}


@asynccontextmanager
async def committing() -> AsyncIterator[tuple[Committer, State, Slow]]:
    state, store = State(), Slow()
    committer = Committer(state, store, CoordinatorMetrics())  # type: ignore[arg-type]
    running = asyncio.create_task(committer.run())
    yield committer, state, store
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_commands_that_arrive_together_share_commits() -> None:
    async with committing() as (committer, _, store):
        await asyncio.gather(*(committer.submit(do.AddShard(f"s{n}", "", 1)) for n in range(200)))
        assert len(store.held) == 200 and len(store.commits) <= 20
        assert max(store.commits) <= store.most_rows


async def test_a_reader_is_served_between_batches_and_sees_only_what_is_committed() -> None:
    async with committing() as (committer, state, store):
        writing = [asyncio.create_task(committer.submit(do.AddShard(f"s{n:04d}", "", 1))) for n in range(400)]
        reads = 0
        while not all(each.done() for each in writing):
            await committer.settled()
            assert set(state.tables.shards) <= store.held, "told before it was committed"
            reads += 1
            await asyncio.sleep(0)
        assert reads > 5, "readers must not wait until writers are done"


async def test_a_refusal_does_not_hold_the_others_up() -> None:
    async with committing() as (committer, _, _store):
        first = committer.submit(do.AddShard("s", "", 1))
        again = committer.submit(do.AddShard("s", "", 1))
        outcomes = await asyncio.gather(first, again, return_exceptions=True)
        assert isinstance(outcomes[1], Refused) and not isinstance(outcomes[0], Exception)


async def test_a_failed_commit_fails_its_commands_and_ends_the_tenure() -> None:
    async with committing() as (committer, _, store):
        store.broken = True
        with pytest.raises(StoreError, match="disk full"):
            await committer.submit(do.AddShard("s", "", 1))
        assert committer.broken.is_set()
        with pytest.raises(NotLeader):
            await committer.submit(do.AddShard("t", "", 1))
        with pytest.raises(NotLeader):
            await committer.settled()
