"""Both stores against the pure state machine: random commands, with a crash possible between any two writes."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bigfleet.coordinator.core.commands import Refused
from bigfleet.coordinator.core.records import Row
from bigfleet.coordinator.core.state import State
from bigfleet.coordinator.server.settings import EtcdSettings
from bigfleet.coordinator.stores.etcd import EtcdStore
from bigfleet.coordinator.stores.sqlite import SqliteStore
from bigfleet.coordinator.stores.store import Store
from tests.strategies.coordinator_commands import commands
from tools.etcd import EtcdCluster


class Died(BaseException):
    """The process ended here."""


class StoredState(RuleBasedStateMachine):
    """A state whose rows go to a real store; a crash loses the process, never the store."""

    async def opened(self) -> Store:
        raise NotImplementedError

    def died(self, store: Store) -> None:
        """What is left of a process that was killed."""
        raise NotImplementedError

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.store = self.run(self.opened())
        self.term = self.run(self.store.campaign()).term
        self.state = State()

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    @rule(data=st.data())
    def command(self, data: Any) -> None:
        """A command either changes state and store alike, or is refused and changes neither."""
        before = self.state.tables.rows()
        wanted = data.draw(commands(self.state))
        try:
            applied = self.state.apply(wanted)
        except Refused:
            assert self.state.tables.rows() == before
            return
        if applied.rows:
            self.run(self.store.commit(applied.rows))

    @rule(data=st.data(), written=st.booleans())
    def crash(self, data: Any, written: bool) -> None:
        """The process dies around a commit: a new one finds the state before or after it, whole."""
        before = self.state.tables.rows()
        wanted = data.draw(commands(self.state))
        try:
            applied = self.state.apply(wanted)
        except Refused:
            return
        after = self.state.tables.rows()
        if written:
            self.run(self.store.commit(applied.rows))
        elif applied.rows:
            self.torn(applied.rows)
        self.reopened()
        assert self.state.tables.rows() == (after if written else before)

    @rule()
    def restart(self) -> None:
        known = self.state.tables.rows()
        self.run(self.store.close())
        self.store = self.run(self.opened())
        self.led()
        assert self.state.tables.rows() == known

    def torn(self, rows: tuple[Row, ...]) -> None:
        """Die in the middle of writing these."""

    def reopened(self) -> None:
        self.died(self.store)
        self.store = self.run(self.opened())
        self.led()

    def led(self) -> None:
        leadership = self.run(self.store.campaign())
        assert leadership.term > self.term
        self.term = leadership.term
        self.state = State(leadership.rows)

    @invariant()
    def every_promise_holds(self) -> None:
        if hasattr(self, "state"):
            assert self.state.validate() == []

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.run(self.store.close())
            self.loop.close()


class SqliteState(StoredState):
    async def opened(self) -> Store:
        if not hasattr(self, "folder"):
            self.folder = tempfile.TemporaryDirectory()
        return SqliteStore(Path(self.folder.name))

    def torn(self, rows: tuple[Row, ...]) -> None:
        """Half of the statements of a transaction reach the file's log; the commit does not."""
        store = self.store
        assert isinstance(store, SqliteStore)

        def half() -> None:
            store._db.execute("BEGIN IMMEDIATE")
            for row in rows[: max(1, len(rows) // 2)]:
                store._db.execute(
                    "INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", (row.table, row.key, row.value or b"")
                )

        store._thread.submit(half).result()

    def died(self, store: Store) -> None:
        assert isinstance(store, SqliteStore)
        # Closing a connection with an open transaction is what the kernel does to a killed process's file.
        store._thread.submit(_close, store._db).result()
        store._thread.shutdown()

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "folder"):
            self.folder.cleanup()


class EtcdState(StoredState):
    """The same against a real etcd. A transaction there is one request, so a crash is before or after it."""

    cluster: EtcdCluster
    prefixes = count()

    async def opened(self) -> Store:
        if not hasattr(self, "prefix"):
            self.prefix = f"/state-{next(self.prefixes)}"
        return EtcdStore(EtcdSettings(self.cluster.endpoints, self.prefix), "node", "127.0.0.1:1")

    def died(self, store: Store) -> None:
        """No farewell: the leader key stays where it is until a successor finds it."""
        assert isinstance(store, EtcdStore)
        if store._beating is not None:
            store._beating.cancel()
        self.run(store._calls.close())


def _close(db: sqlite3.Connection) -> None:
    db.close()


TestSqliteState = SqliteState.TestCase
TestSqliteState.settings = settings(
    max_examples=30, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestEtcdState = EtcdState.TestCase
TestEtcdState.settings = settings(
    max_examples=15, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.fixture(scope="module", autouse=True)
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    EtcdState.cluster = EtcdCluster(tmp_path_factory.mktemp("etcd"))
    EtcdState.cluster.start()
    yield
    EtcdState.cluster.stop()
