"""State that must survive: the SQLite store against the memory store, and restarts of a served provider."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.model.taint import Taint
from bigfleet.provider import kit
from bigfleet.provider.kit.core.core import Snapshot
from bigfleet.provider.kit.core.events import (
    ForgetFence,
    ForgetRemovals,
    Row,
    SaveFence,
    SaveMachine,
    SaveOperation,
    SaveRemoval,
)
from bigfleet.provider.kit.core.records import Host, Kind, MachineRecord, Shape
from bigfleet.provider.kit.sqlite_store import SqliteStore
from bigfleet.provider.kit.store import MemoryStore, StoreError
from bigfleet.wire import provider_pb2 as pb
from tests.kit.world import MemoryProvider, World, code_of, running
from tools.waiting import until

ids = st.sampled_from(["a", "b\0b", "ключ", "", "a'b\"c"])
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
int64 = st.integers(-(2**63), 2**63 - 1)
shapes = st.builds(
    Shape,
    texts,
    texts,
    st.sampled_from(CapacityType),
    st.floats(0, 1e9),
    st.floats(0, 1),
    st.lists(st.tuples(texts, texts), max_size=2).map(tuple),
    st.just(()),
    st.lists(st.tuples(texts, texts), max_size=2).map(tuple),
    st.lists(st.builds(Taint, texts, texts, texts), max_size=1).map(tuple),
)
machines = st.builds(
    MachineRecord,
    ids,
    st.sampled_from(MachineState),
    shapes,
    st.none() | st.builds(Host, texts, texts),
    texts,
    st.dictionaries(texts, texts, max_size=3),
    texts,
    st.integers(0, 2**63 - 1),
    texts,
    st.booleans(),
)
rows = st.one_of(
    st.builds(SaveMachine, machines),
    st.builds(SaveRemoval, machines, st.integers(0, 100), st.none() | st.floats(0, 1e10)),
    st.builds(SaveFence, ids, ids, int64, int64),
    st.builds(ForgetFence, ids, ids),
    st.builds(SaveOperation, ids, st.sampled_from(Kind), texts, st.integers(1, 2**62)),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(st.lists(rows, max_size=6), max_size=4))
def test_sqlite_gives_back_exactly_what_memory_would(
    batches: list[list[Row]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("store") / "state.db"
    memory, durable = MemoryStore(), SqliteStore(path)
    for batch in batches:
        memory.write(batch)
        durable.write(batch)
    durable.close()
    reopened = SqliteStore(path)
    assert _comparable(reopened.load()) == _comparable(memory.load())
    reopened.close()


def test_forgotten_removals_raise_the_floor_and_keep_later_ones(tmp_path: Path) -> None:
    record = MachineRecord("m", MachineState.SPECULATIVE, Shape("box"))
    store = SqliteStore(tmp_path / "s.db")
    store.write([SaveRemoval(record, 5, None), SaveRemoval(MachineRecord("n", record.state, record.shape), 9, None)])
    store.write([ForgetRemovals(("m",), 5)])
    kept = store.load()
    assert [removal.machine.id for removal in kept.removals] == ["n"] and kept.floor == 5


def test_a_state_file_serves_one_process_only(tmp_path: Path) -> None:
    first = SqliteStore(tmp_path / "s.db")
    first.write([SaveFence("s", "m", 1, 1)])
    second = sqlite3.connect(tmp_path / "s.db", timeout=0)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        second.execute("SELECT * FROM fences").fetchall()
    first.close()


def test_an_unusable_state_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "junk.db").write_bytes(b"not a database at all, but long enough to be looked at" * 20)
    with pytest.raises(StoreError, match=r"junk\.db"):
        SqliteStore(tmp_path / "junk.db")
    newer = sqlite3.connect(tmp_path / "newer.db")
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    with pytest.raises(StoreError, match="version 99"):
        SqliteStore(tmp_path / "newer.db")


async def test_a_restart_keeps_marks_operations_bindings_and_cursors(tmp_path: Path) -> None:
    state = str(tmp_path / "state.db")
    token = {"shard_id": "s", "shard_epoch": 3, "sequence_number": 7}
    async with running(MemoryProvider(), state=state) as world:
        await world.stub.Create(pb.CreateRequest(machine_id="m000", **token))
        await world.to_idle("m001")
        bound = await world.to_configured("m001", shard_metadata={"k\0": "v", "": ""})
        await world.settle("m000", pb.MACHINE_STATE_IDLE)
        before = await world.stub.List(pb.ListFilter())
    async with running(MemoryProvider(), state=state) as world:
        after = await world.stub.List(pb.ListFilter())
        assert _by_id(after) == _by_id(before) and after.revision == before.revision
        stale = pb.CreateRequest(machine_id="m000", **token)
        assert await code_of(world.stub.Create(stale)) == grpc.StatusCode.FAILED_PRECONDITION
        again = await world.stub.Configure(pb.ConfigureRequest(machine_id="m001", cluster_id="c1"))
        assert again.operation_id == bound.operation_id
        fresh = await world.to_idle("m002")
        assert fresh.operation_id not in (bound.operation_id, again.operation_id)
        delta = await world.stub.List(pb.ListFilter(since_revision=before.revision))
        assert {machine.id for machine in delta.machines} == {"m002"}


async def test_a_restart_in_the_middle_of_work_fails_it_visibly(tmp_path: Path) -> None:
    state = str(tmp_path / "state.db")
    provider = MemoryProvider()
    async with running(provider, state=state) as world:
        provider.hold("create")
        await world.stub.Create(pb.CreateRequest(machine_id="m000"))
    async with running(MemoryProvider(), state=state) as world:
        failed = await world.get("m000")
        assert failed.state == pb.MACHINE_STATE_FAILED and "restart" in failed.last_error


async def test_a_provider_that_can_reattach_finishes_the_work_with_the_same_operation(tmp_path: Path) -> None:
    class Resuming(MemoryProvider):
        async def reattach_instance(self, kind: kit.Kind, machine: kit.Machine, operation_id: str) -> str:
            assert kind is kit.Kind.CREATE
            return await self.create_instance(machine, operation_id)

    state = str(tmp_path / "state.db")
    provider = Resuming()
    async with running(provider, state=state) as world:
        provider.hold("create")
        ack = await world.stub.Create(pb.CreateRequest(machine_id="m000"))
    resumed = Resuming()
    async with running(resumed, state=state) as world:
        idle = await world.settle("m000", pb.MACHINE_STATE_IDLE)
        assert idle.host.ref == f"host-{ack.operation_id}"
        assert resumed.calls == [("create", "m000", ack.operation_id)]


async def answers(world: World, machine_id: str, wanted: grpc.StatusCode) -> None:
    await until(lambda: code_of(world.stub.Get(pb.MachineRef(id=machine_id))), lambda code: code == wanted)


async def test_a_lost_host_stays_lost_over_a_restart_and_its_slot_returns(tmp_path: Path) -> None:
    state = str(tmp_path / "state.db")
    provider = MemoryProvider()
    options = kit.Options(relist_after=1.0)
    async with running(provider, state=state, options=options) as world:
        await world.to_idle("m000")
        assert provider.handle is not None
        cursor = (await world.stub.List(pb.ListFilter())).revision
        provider.handle.host_lost("m000", "reclaimed")
        await answers(world, "m000", grpc.StatusCode.NOT_FOUND)
    async with running(MemoryProvider(), state=state, options=options) as world:
        await answers(world, "m000", grpc.StatusCode.OK)
        assert (await world.get("m000")).state == pb.MACHINE_STATE_SPECULATIVE
        delta = await world.stub.List(pb.ListFilter(since_revision=cursor))
        assert {machine.id for machine in delta.machines} == {"m000"} and not delta.removed_ids


async def test_a_lost_state_file_makes_old_cursors_full_lists(tmp_path: Path) -> None:
    async with running(MemoryProvider(), state=str(tmp_path / "a.db")) as world:
        old = (await world.stub.List(pb.ListFilter())).revision
    async with running(MemoryProvider(), state=str(tmp_path / "b.db")) as world:
        assert len((await world.stub.List(pb.ListFilter(since_revision=old))).machines) == 8


def _by_id(listed: pb.MachineList) -> dict[str, bytes]:
    return {machine.id: machine.SerializeToString(deterministic=True) for machine in listed.machines}


def _comparable(snapshot: Snapshot) -> tuple[object, ...]:
    return (
        {machine.id: machine for machine in snapshot.machines},
        {(fence.shard_id, fence.machine_id): fence for fence in snapshot.fences},
        {(row.machine_id, row.kind): row for row in snapshot.operations},
        {removal.machine.id: removal for removal in snapshot.removals},
        snapshot.floor,
    )
