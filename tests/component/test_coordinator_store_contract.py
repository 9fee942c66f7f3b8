"""What every store of the coordinator promises, one class of tests for both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from bigfleet.coordinator.core import commands as do
from bigfleet.coordinator.core.records import Row
from bigfleet.coordinator.core.state import State
from bigfleet.coordinator.server.committer import Committer
from bigfleet.coordinator.server.metrics import CoordinatorMetrics
from bigfleet.coordinator.server.settings import EtcdSettings
from bigfleet.coordinator.stores.etcd import EtcdStore
from bigfleet.coordinator.stores.sqlite import SqliteStore
from bigfleet.coordinator.stores.store import NotLeader, Store, StoreError
from tools.etcd import EtcdCluster

Open = Callable[..., Awaitable[Store]]
ROWS = [Row("shard", "s0", b"{}"), Row("cluster", 'odd "key" / ünïcode', b"[1]"), Row("meta", "meta", b"\x00\xff")]


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    cluster = EtcdCluster(tmp_path_factory.mktemp("etcd"))
    cluster.start()
    yield cluster
    cluster.stop()


class Contract:
    """Subclasses say how a replica opens the store of one fleet."""

    async def test_a_replica_leads_with_what_was_committed_and_a_higher_term_each_time(self, reach: Open) -> None:
        first = await reach()
        begun = await first.campaign()
        assert (begun.term, begun.rows) == (1, [])
        assert first.leading() and first.leader() == "127.0.0.1:1"
        await first.commit(ROWS)
        await first.commit([Row("cluster", ROWS[1].key)])
        await first.close()
        again = await (await reach()).campaign()
        assert again.term == 2
        assert sorted(again.rows, key=lambda row: row.table) == [ROWS[2], ROWS[0]]

    async def test_a_term_is_raised_above_a_mark_and_stays_there(self, reach: Open) -> None:
        store = await reach()
        await store.campaign()
        assert await store.raise_term(500) == 501
        assert await store.raise_term(3) == 502
        await store.close()
        assert (await (await reach()).campaign()).term == 503

    async def test_nobody_leads_after_resigning(self, reach: Open) -> None:
        store = await reach()
        await store.campaign()
        await store.resign()
        assert not store.leading() and store.leader() == ""
        await asyncio.wait_for(store.lost(), 1)

    async def test_a_restored_store_goes_on_above_the_snapshot_and_refuses_a_second_restore(self, reach: Open) -> None:
        store = await reach()
        many = [Row("domain", f"d{number}", b"{}") for number in range(250)]
        assert await store.restore(many, 1_000_007) == 250
        with pytest.raises(StoreError, match="empty"):
            await store.restore(many, 1)
        begun = await store.campaign()
        assert begun.term == 1_000_008 and len(begun.rows) == 250

    async def test_a_shard_with_thousands_of_domains_goes_in_one_commit(self, reach: Open) -> None:
        state, store = State(), await reach()
        rows: list[Row] = [*state.apply(do.AddShard("keep", "", 1)).rows, *state.apply(do.AddShard("gone", "", 1)).rows]
        for number in range(20_000):
            shard = "gone" if number % 200 else "keep"
            rows += state.apply(do.AssignDomain("topology.kubernetes.io/zone", f"z{number:06d}", shard)).rows
        await store.restore(list({(row.table, row.key): row for row in rows}.values()), 0)
        begun = await store.campaign()
        leading = await asyncio.to_thread(State, begun.rows)
        removal = leading.apply(do.RemoveShard("gone"))
        assert len(removal.rows) <= 3, "atomic, whatever a transaction can hold"
        await store.commit(removal.rows)
        assert len(leading.tables.domains) == 100
        # A replica that takes over before anything was swept sees the same.
        await store.close()
        after = await (await reach()).campaign()
        assert State(after.rows).tables.rows() == leading.tables.rows()

    async def test_the_dead_are_swept_in_small_commits(self, reach: Open) -> None:
        state, store = State(), await reach()
        await store.campaign()
        metrics = CoordinatorMetrics()
        committer = Committer(state, store, metrics)
        running = asyncio.create_task(committer.run())
        await committer.submit(do.AddShard("gone", "", 1))
        await asyncio.gather(*(committer.submit(do.AssignDomain("k", f"v{number}", "gone")) for number in range(300)))
        await committer.submit(do.RemoveShard("gone"))
        while state.tables.dead:
            await committer.submit(do.Sweep())
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await store.close()
        left = await (await reach()).campaign()
        assert [row.table for row in left.rows] == ["meta"]


class TestSqlite(Contract):
    @pytest.fixture
    async def reach(self, tmp_path: Path) -> AsyncIterator[Open]:
        opened: list[Store] = []

        async def make() -> Store:
            opened.append(SqliteStore(tmp_path, "127.0.0.1:1"))
            return opened[-1]

        yield make
        await opened[-1].close()

    async def test_a_second_process_on_the_file_is_refused(self, reach: Open) -> None:
        await (await reach()).campaign()
        with pytest.raises(StoreError, match="locked"):
            await reach()


class TestEtcd(Contract):
    prefixes = count()

    @pytest.fixture
    async def reach(self, etcd: EtcdCluster) -> AsyncIterator[Open]:
        opened: list[EtcdStore] = []
        prefix = f"/contract-{next(self.prefixes)}"

        async def make(replica: str = "n0", address: str = "127.0.0.1:1") -> Store:
            # A first endpoint that nobody serves: the others must be found.
            settings = EtcdSettings(("127.0.0.1:1", *etcd.endpoints), prefix, lease_seconds=3)
            opened.append(EtcdStore(settings, replica, address))
            return opened[-1]

        yield make
        for store in opened:
            await store.close()

    async def test_a_replaced_leader_writes_nothing_and_finds_out(self, reach: Open) -> None:
        old = await reach("n0", "127.0.0.1:1")
        await old.campaign()
        await old.commit([ROWS[0]])
        # Nobody listens on the leader's address, so it counts as dead although it lives.
        new = await reach("n1", "127.0.0.1:2")
        assert (await asyncio.wait_for(new.campaign(), 10)).term == 2
        with pytest.raises(NotLeader):
            await old.commit([ROWS[1]])
        assert not old.leading()
        await asyncio.wait_for(old.lost(), 1)
        await new.commit([ROWS[2]])
        await new.close()
        left = await (await reach("n2", "127.0.0.1:3")).campaign()
        assert {row.table for row in left.rows} == {"shard", "meta"}

    async def test_a_leader_whose_port_answers_is_not_replaced_while_it_keeps_its_lease(self, reach: Open) -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        old = await reach("n0", f"127.0.0.1:{port}")
        await old.campaign()
        new = await reach("n1", "127.0.0.1:2")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(new.campaign(), 5)
        assert old.leading() and new.leader() == f"127.0.0.1:{port}"
        server.close()

    async def test_a_commit_that_was_repeated_late_does_not_undo_a_later_one(self, reach: Open) -> None:
        store = await reach()
        await store.campaign()
        assert isinstance(store, EtcdStore)
        sent = []
        txn = store._calls.txn

        async def watched(request: object, seconds: float) -> object:
            sent.append(request)
            return await txn(request, seconds)

        store._calls.txn = watched  # type: ignore[method-assign]
        await store.commit([Row("shard", "s", b"1")])
        await store.commit([Row("shard", "s", b"2")])
        late = await txn(sent[0], 5.0)
        assert not late.succeeded
        await store.commit([Row("shard", "t", b"3")])
        await store.close()
        rows = (await (await reach()).campaign()).rows
        assert {(row.key, row.value) for row in rows} == {("s", b"2"), ("t", b"3")}


del Contract
