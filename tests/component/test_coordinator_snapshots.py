"""Snapshots: saved from a running coordinator, verified, damaged and found out, restored into either kind of store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bigfleet.cli.ctl.snapshot import app
from bigfleet.coordinator.core import commands as do
from bigfleet.coordinator.core.records import Phase, Selector, Transfer
from bigfleet.coordinator.core.state import State
from bigfleet.coordinator.server.exporting import export_once
from bigfleet.coordinator.server.settings import EtcdSettings
from bigfleet.coordinator.snapshots.document import Snapshot, restorable, snapshot_of, verify
from bigfleet.coordinator.snapshots.files import read_snapshot, write_tar
from bigfleet.wire import coordinator_pb2 as pb
from tests.strategies.coordinator_process import OURS, Peer, coordinator
from tools.etcd import EtcdCluster

ZONE = "topology.kubernetes.io/zone"


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    cluster = EtcdCluster(tmp_path_factory.mktemp("etcd"))
    cluster.start()
    yield cluster
    cluster.stop()


def some_state() -> State:
    state = State()
    for name in ("s0", "s1"):
        state.apply(do.AddShard(name, f"{name}:1", 5, True))
    first, second = (state.tables.shards[name].generation for name in ("s0", "s1"))
    state.apply(do.BindCluster("c", "s0", 6))
    state.apply(do.SetQuota("p", "eu", (("s0", 4, ("x", "y")),)))
    state.apply(do.Propose(Transfer("t", Phase.PROPOSED, first, second, selector=Selector("k", "z", 2))))
    state.apply(do.Release("t", ("m0", "m1")))
    state.apply(do.AssignDomain(ZONE, "a", "s1"))
    return state


def test_a_snapshot_holds_everything_and_says_the_documented_things() -> None:
    state = some_state()
    snapshot = snapshot_of(state, 7, 10**18)
    verdict = verify(snapshot)
    assert verdict.problems == [] and (verdict.revision, verdict.term) == (state.revision, 7)
    assert verdict.state.tables.rows() == state.tables.rows()
    document = json.loads(snapshot.data)
    assert document["cluster_to_shard"] == {"c": "s0"}
    assert document["domain_to_shard"] == [{"domain": {"Key": ZONE, "Value": "a"}, "shard": "s1"}]
    assert [each["ID"] for each in document["shards"]] == ["s0", "s1"]


@pytest.mark.parametrize("at", [3, 200, -2])
def test_a_changed_byte_is_found(at: int) -> None:
    snapshot = snapshot_of(some_state(), 7, 0)
    data = bytearray(snapshot.data)
    data[at] ^= 1
    assert any("checksum" in problem for problem in verify(Snapshot(snapshot.meta, bytes(data))).problems)


def test_a_cut_file_and_a_foreign_file_are_found(tmp_path: Path) -> None:
    snapshot = snapshot_of(some_state(), 7, 0)
    assert verify(Snapshot(snapshot.meta, snapshot.data[:-10])).problems
    assert verify(Snapshot(b"{}", snapshot.data)).problems
    (tmp_path / "x").write_bytes(b"not a tar")
    runner = CliRunner()
    assert runner.invoke(app, ["verify", str(tmp_path / "x")]).exit_code == 1


def test_a_snapshot_of_the_reference_is_enough_to_restore_from() -> None:
    listings = {
        "shards": [{"ID": "s0", "Address": "h:1", "RegisteredAt": "2026-01-02T03:04:05.000000006Z"}],
        "cluster_to_shard": {"c": "s0"},
        "domain_to_shard": [{"domain": {"Key": ZONE, "Value": "a"}, "shard": "s0"}],
        "quotas": None,
    }
    meta = {"Version": 1, "ID": "2-10-1", "Index": 10, "Term": 2}
    verdict = verify(Snapshot(json.dumps(meta).encode(), json.dumps(listings).encode()))
    assert verdict.problems == []
    rows, term = restorable(verdict)
    restored = State(rows)
    assert restored.tables.shards["s0"].registered_at == 1767323045_000000006
    assert restored.revision > 1_000_000 and term == 1_000_002 and restored.validate() == []


async def test_saved_from_one_kind_of_store_and_restored_into_the_other(tmp_path: Path, etcd: EtcdCluster) -> None:
    saved = tmp_path / "backup.snap"
    async with coordinator(tmp_path / "first") as asked:
        peer = Peer(asked.stub, "s0", capabilities=OURS)
        await peer.obey(clusters=[pb.ReportedCluster(cluster_id="c", connected=True)])
        await asked.stub.AssignDomain(pb.AssignDomainRequest(topology_key=ZONE, topology_value="a", shard_id="s0"))
        await peer.obey()
        rows = [row for row in asked.tables.rows() if row.table != "meta"]
        frames = [frame async for frame in asked.stub.SnapshotSave(pb.SnapshotSaveRequest())]
        assert frames[0].WhichOneof("payload") == "meta_json"
        write_tar(Snapshot(frames[0].meta_json, b"".join(frame.data for frame in frames[1:])), saved)
        verdict = await asked.stub.SnapshotVerify(iter(frames))
        assert verdict.valid and (verdict.shards, verdict.clusters, verdict.domains) == (1, 1, 1)
        # What happens after the snapshot is lost with the store, but shards have seen its versions.
        await asked.stub.AssignDomain(pb.AssignDomainRequest(topology_key=ZONE, topology_value="b", shard_id="s0"))
        await peer.obey()
    runner = CliRunner()
    endpoints = ",".join(etcd.endpoints)
    into_etcd = ["restore", str(saved), "--etcd-endpoints", endpoints, "--etcd-prefix", "/restored", "-o", "json"]
    done = await asyncio.to_thread(runner.invoke, app, into_etcd)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["next_term"] == 1_000_002
    second = {"etcd": EtcdSettings(etcd.endpoints, "/restored")}
    async with coordinator(tmp_path / "unused", **second) as asked:
        assert [row for row in asked.tables.rows() if row.table != "meta"] == rows
        peer.stub = asked.stub
        answer = await peer.obey()
        assert answer.coordinator_term == 1_000_002, "above what the shard has seen"
        assert [each.topology_value for each in answer.ownership.domains] == ["a"]
        assert answer.ownership.version > peer.version or peer.version > 1_000_000
        folder = tmp_path / "exports"
        for _ in range(3):
            assert await export_once(asked.process.replica, folder, keep=2)
        exports = sorted(each.name for each in folder.iterdir() if not each.is_symlink())
        assert len(exports) == 2 and (folder / "latest").resolve().name == exports[-1]
    back = ["restore", str(folder), "--data-dir", str(tmp_path / "third"), "-o", "json"]
    done = await asyncio.to_thread(runner.invoke, app, back)
    assert done.exit_code == 0, done.output
    async with coordinator(tmp_path / "third") as asked:
        assert [row for row in asked.tables.rows() if row.table != "meta"] == rows
        assert (await Peer(asked.stub, "s0").report()).coordinator_term == 2_000_003
    again = await asyncio.to_thread(runner.invoke, app, back)
    assert again.exit_code == 1, "a store that holds a state is not overwritten"


def test_saving_never_leaves_half_a_file(tmp_path: Path) -> None:
    snapshot = snapshot_of(some_state(), 7, 0)
    write_tar(snapshot, tmp_path / "a.snap")
    assert [each.name for each in tmp_path.iterdir()] == ["a.snap"]
    assert read_snapshot(tmp_path / "a.snap") == snapshot
    verified = CliRunner().invoke(app, ["verify", str(tmp_path / "a.snap"), "-o", "json"])
    assert verified.exit_code == 0 and json.loads(verified.stdout)["domains"] == 1
