"""Peers that are not who they say, or mean harm: refused with the contract's code, logged, counted; others are served.

Identities are tried on a shard and a provider that speak mutual TLS, everything else on the plaintext fleet.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from bigfleet.shard.process import ShardProcess
from bigfleet.shard.runtime import journal
from bigfleet.shard.settings import settings_from
from bigfleet.transport import ADMIN, READONLY, Identity, Kind, TlsFiles, authority, channel
from bigfleet.transport.errors import TransportError
from bigfleet.wire import (
    capacity_pb2,
    provider_pb2,
    provider_pb2_grpc,
    shard_pb2,
    shard_pb2_grpc,
    shardread_pb2,
    shardread_pb2_grpc,
)
from tests.strategies.fleet_process import SETTINGS, Asking, rows, until
from tests.strategies.operator_client import Row, SyntheticOperator, operator, raw_session
from tests.strategies.shard_process import QUICK
from tools.processes import LocalFleet

UNIT = {"cpu": "2", "memory": "4Gi"}
DENIED = grpc.StatusCode.PERMISSION_DENIED
HELLO = shard_pb2.OperatorMessage(hello=shard_pb2.Hello(cluster_id="mallory")).SerializeToString()
REJECTED = shard_pb2.Acknowledgement.OUTCOME_REJECTED


class Certificates:
    """A development authority and what it issued."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority.create_authority(folder)

    def of(self, identity: Identity) -> TlsFiles:
        issued = authority.issue(self.folder, identity, addresses=("127.0.0.1",), force=True)
        return TlsFiles(str(issued.certificate), str(issued.key), str(self.folder / authority.CA_CERTIFICATE))

    def cluster(self, name: str) -> TlsFiles:
        return self.of(Identity(Kind.CLUSTER, name))

    def with_names(self, *names: str) -> TlsFiles:
        """A certificate of the authority that carries exactly these URIs."""
        uris = [x509.UniformResourceIdentifier(name) for name in names]
        leaf, key = authority.sign_leaf(*authority.load_authority(self.folder), common_name="odd", names=uris, days=1)
        (self.folder / "odd.crt").write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
        pkcs8, bare = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        (self.folder / "odd.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, pkcs8, bare))
        return TlsFiles(
            str(self.folder / "odd.crt"), str(self.folder / "odd.key"), str(self.folder / authority.CA_CERTIFICATE)
        )


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secured(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    """A shard and its provider as processes, each with its own certificate and the other's identity required."""
    own = certificates.of(Identity(Kind.SHARD, "shard-0"))
    theirs = certificates.of(Identity(Kind.PROVIDER, "p1"))
    machines = {
        "name": "m",
        "instance_type": "m6i.large",
        "capacity_type": "reserved",
        "count": 4,
        "hosts": 4,
        "zones": ["zone-a"],
        "price_per_hour": 0.1,
        "resources": {"cpu": "2", "memory": "8Gi"},
    }
    fleet = LocalFleet(
        tmp_path_factory.mktemp("secured"),
        {"provider": "fake", "offerings": [machines]},
        {**SETTINGS, "tls-cert": own.cert, "tls-key": own.key, "tls-ca": own.ca, "provider-identity": True}
        | {"idle-hold-by-provider": {}},
        provider_flags=("--tls-cert", theirs.cert, "--tls-key", theirs.key, "--tls-ca", theirs.ca),
    )
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.stop()


async def is_served(address: str, cluster_name: str, tls: TlsFiles, pods: int = 1) -> None:
    async with operator(address, cluster_name, tls=tls) as cluster:
        assert cluster.heard.acks[0].echo == "hello", "the first frame is the ack of Hello"
        await cluster.until(lambda heard: True)
        cluster.want([Row(pods=pods, unit=UNIT)])
        await cluster.send_rollup()
        await cluster.until(lambda heard: len(heard.configured) == pods, 60)


async def test_a_cluster_with_its_own_certificate_is_served_to_the_end(
    secured: LocalFleet, certificates: Certificates
) -> None:
    await is_served(secured.address, "c-1", certificates.cluster("c-1"))


@pytest.mark.parametrize("who", ["other cluster", "admin", "shard", "nobody", "two at once"])
async def test_nobody_else_can_speak_for_a_cluster(secured: LocalFleet, certificates: Certificates, who: str) -> None:
    presented = {
        "other cluster": lambda: certificates.cluster("other"),
        "admin": lambda: certificates.of(ADMIN),
        "shard": lambda: certificates.of(Identity(Kind.SHARD, "c-1")),
        "nobody": lambda: certificates.with_names("spiffe://somewhere/else"),
        "two at once": lambda: certificates.with_names("bigfleet://cluster/c-1", "bigfleet://admin"),
    }[who]()
    before = secured.metrics()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        async with operator(secured.address, "c-1", tls=presented):
            pass
    assert refused.value.code() is DENIED
    after = secured.metrics()
    for counter in (("session_identity_rejected_total",), ("streams_refused_total", "identity")):
        assert after[counter] == before.get(counter, 0.0) + 1
    line = list(secured.shard.lines("operator session identity rejected"))[-1]
    assert line["level"] == "ERROR" and line["cluster"] == "c-1" and line["presented_identity"]


async def test_without_a_certificate_or_with_one_of_another_authority_there_is_no_connection(
    secured: LocalFleet, certificates: Certificates, tmp_path: Path
) -> None:
    stranger = Certificates(tmp_path).cluster("c-1")
    foreign = TlsFiles(stranger.cert, stranger.key, certificates.cluster("c-1").ca)
    for tls in (TlsFiles("", "", ""), foreign):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            async with operator(secured.address, "c-1", tls=tls):
                pass
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    await is_served(secured.address, "c-1", certificates.cluster("c-1"))


async def test_a_certificate_for_one_cluster_is_no_pass_for_roll_ups_of_another(
    secured: LocalFleet, certificates: Certificates
) -> None:
    async with (
        operator(secured.address, "victim", tls=certificates.cluster("victim")) as victim,
        operator(secured.address, "mallory", tls=certificates.cluster("mallory")) as mallory,
    ):
        victim.want([Row(pods=2, unit=UNIT, priority=50)])
        await victim.send_rollup()
        await victim.until(lambda heard: len(heard.configured) == 2, 60)
        sent = await mallory.send_rollup(cluster="victim")
        await mallory.until(lambda heard: any(ack.rollup_timestamp == sent for ack in heard.acks), 60)
        assert mallory.heard.acks[-1].outcome == REJECTED
        assert secured.metrics()["rollups_rejected_total", "mallory"] == 1
        assert any(line["cluster"] == "mallory" for line in secured.shard.lines("rollup rejected at ingest validation"))
        victim.want([Row(pods=2, unit=UNIT, priority=50)])
        await victim.send_rollup()
        await victim.until(lambda heard: len(heard.acks) >= 3, 60)
        assert len(victim.heard.configured) == 2 and not victim.heard.reclaims


@pytest.mark.parametrize("identity", [READONLY, ADMIN], ids=["readonly", "admin"])
async def test_readers_with_the_right_identity_may_read(
    secured: LocalFleet, certificates: Certificates, identity: Identity
) -> None:
    async with channel(secured.address, tls=certificates.of(identity)) as opened:
        stub = shardread_pb2_grpc.ShardReadStub(opened)
        frames = [frame async for frame in stub.InspectNeeds(shardread_pb2.InspectNeedsRequest())]
    assert frames[0].HasField("header")


async def test_a_cluster_may_neither_read_nor_switch(secured: LocalFleet, certificates: Certificates) -> None:
    async with channel(secured.address, tls=certificates.cluster("c-1")) as opened:
        reads, switches = shardread_pb2_grpc.ShardReadStub(opened), shard_pb2_grpc.ShardAdminStub(opened)
        with pytest.raises(grpc.aio.AioRpcError) as explain:
            await reads.Explain(shardread_pb2.ExplainRequest())
        with pytest.raises(grpc.aio.AioRpcError) as machines:
            async for _ in reads.ListMachines(shardread_pb2.ListMachinesRequest()):
                pass
        with pytest.raises(grpc.aio.AioRpcError) as switch:
            await switches.SetRails(capacity_pb2.SetRailsRequest())
    assert {refused.value.code() for refused in (explain, machines, switch)} == {DENIED}
    lines = list(secured.shard.lines("shard rejected read identity"))
    assert {line["rpc"] for line in lines} >= {"Explain", "ListMachines", "SetRails"}


async def test_readonly_may_not_switch_and_admin_may(secured: LocalFleet, certificates: Certificates) -> None:
    wanted = capacity_pb2.SetRailsRequest(rails=capacity_pb2.Rails(dry_run=True))
    async with channel(secured.address, tls=certificates.of(READONLY)) as opened:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await shard_pb2_grpc.ShardAdminStub(opened).SetRails(wanted)
        assert refused.value.code() is DENIED
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await shard_pb2_grpc.ShardAdminStub(opened).ForgetCluster(shard_pb2.ForgetClusterRequest(cluster_id="c-1"))
        assert refused.value.code() is DENIED
    async with channel(secured.address, tls=certificates.of(ADMIN)) as opened:
        stub = shard_pb2_grpc.ShardAdminStub(opened)
        answer = await stub.SetRails(wanted)
        assert answer.effective.dry_run and answer.effective.set_by == "bigfleet://admin"
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.SetRails(capacity_pb2.SetRailsRequest(shard_id="shard-9"))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        await stub.SetRails(capacity_pb2.SetRailsRequest(rails=capacity_pb2.Rails()))


# Bad frames, on the plaintext fleet.


async def ends(call: grpc.aio.StreamStreamCall[bytes, bytes]) -> grpc.StatusCode:
    async with asyncio.timeout(30):
        return await call.code()


async def counted(fleet: Asking, reason: str, before: float) -> None:
    assert await fleet.metric("streams_refused_total", reason) == before + 1


async def serves(fleet: Asking, cluster: SyntheticOperator, kind: str) -> None:
    """The other cluster's stream goes on as if nothing happened."""
    cluster.want(rows(kind, 2))
    await cluster.send_rollup()
    await cluster.until(lambda heard: len(heard.configured) == 2, 60)


@pytest.mark.parametrize(
    ("frame", "code", "reason"),
    [
        (b"\xff" * 100, grpc.StatusCode.INVALID_ARGUMENT, "garbage"),
        (b"\x12" + b"\xff" * 100, grpc.StatusCode.INVALID_ARGUMENT, "garbage"),
        (b"\x12" + b"\x00" * (2 << 20), grpc.StatusCode.RESOURCE_EXHAUSTED, "oversized"),
    ],
    ids=["garbage", "garbage after a tag", "oversized"],
)
async def test_a_frame_that_cannot_be_read_ends_its_own_stream_only(
    fleet: Asking, frame: bytes, code: grpc.StatusCode, reason: str
) -> None:
    before = await fleet.metric("streams_refused_total", reason)
    async with operator(fleet.address, "garbage-1") as good:
        async with raw_session(fleet.address) as bad:
            await bad.write(HELLO)
            await bad.read()
            await bad.write(frame)
            assert await ends(bad) is code
        await counted(fleet, reason, before)
        assert fleet.logged("operator message handling", cluster="mallory", reason=reason)
        await serves(fleet, good, "garbage")


@pytest.mark.parametrize(
    "first",
    [b"", b"\xff\xff", shard_pb2.OperatorMessage(hello=shard_pb2.Hello()).SerializeToString()],
    ids=["empty", "garbage", "nameless"],
)
async def test_a_stream_that_does_not_begin_with_a_hello_is_refused(fleet: Asking, first: bytes) -> None:
    before = await fleet.metric("streams_refused_total", "hello")
    async with raw_session(fleet.address) as bad:
        await bad.write(first)
        assert await ends(bad) is grpc.StatusCode.INVALID_ARGUMENT
    await counted(fleet, "hello", before)
    assert fleet.logged("operator stream refused", reason="hello")


async def test_streams_and_connections_that_only_wait_are_ended_and_hold_up_nobody(fleet: Asking) -> None:
    host, _, port = fleet.address.rpartition(":")
    before = await fleet.metric("streams_refused_total", "hello")
    async with operator(fleet.address, "loris-1") as good:
        halves = [await asyncio.open_connection(host, int(port)) for _ in range(40)]
        for _, writer in halves[:20]:
            writer.write(b"PRI * HTTP/2.0\r\n")
        async with _silent(fleet.address), _silent(fleet.address), _silent(fleet.address) as last:
            await serves(fleet, good, "loris")
            assert await ends(last) is grpc.StatusCode.INVALID_ARGUMENT, "no Hello within its time"
        for _, writer in halves:
            writer.close()
    await until(lambda: _grown(fleet, "hello", before + 3))
    assert any("no Hello within" in line["err"] for line in fleet.logged("operator stream refused"))


@asynccontextmanager
async def _silent(address: str) -> AsyncIterator[grpc.aio.StreamStreamCall[bytes, bytes]]:
    """A stream that says nothing; gRPC sends its headers only with a first look at it."""
    async with raw_session(address) as call:
        await call.wait_for_connection()
        yield call


async def _grown(fleet: Asking, reason: str, to: float) -> bool:
    return await fleet.metric("streams_refused_total", reason) >= to


# Fences.


async def test_a_replayed_fence_is_refused_by_the_provider_and_changes_nothing(fleet: Asking) -> None:
    async with operator(fleet.address, "victim-1") as cluster:
        await serves(fleet, cluster, "victim")
        (machine, _) = cluster.heard.configured
        async with channel(fleet.local.provider_address) as opened:
            stub = provider_pb2_grpc.CapacityProviderStub(opened)
            for epoch, sequence in ((1, 1), (0, 10**6)):
                replay = provider_pb2.DrainRequest(
                    machine_id=machine, shard_id="shard-0", shard_epoch=epoch, sequence_number=sequence
                )
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await stub.Drain(replay)
                assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        await fleet.cycles(2)
        assert len(cluster.heard.configured) == 2 and not cluster.heard.reclaims


async def test_a_zombie_with_an_old_epoch_is_fenced_says_so_and_gives_the_machine_up(
    fleet: Asking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with operator(fleet.address, "fenced-1") as cluster:
        cluster.want(rows("fenced", 1))
        await cluster.send_rollup()
        await cluster.until(lambda heard: len(heard.configured) == 1, 60)
        cluster.want([])
        await cluster.send_rollup()
        await until(lambda: _idle(fleet))
    # The same shard id on a host whose clock went back to 1970, over a journal that knows nothing: its epoch is 1.
    monkeypatch.setattr(journal, "milliseconds", lambda: 1)
    quick = {**QUICK, "provider": [f"p1={fleet.local.provider_address}"], "data-dir": str(tmp_path)}
    async with ShardProcess.opened(*settings_from(quick)) as zombie:
        stop = asyncio.Event()
        serving = asyncio.create_task(zombie.serve(stop))
        await until(lambda: _ready(zombie), seconds=300)
        try:
            async with operator(zombie.address, "fenced-2") as misled:
                misled.want(rows("fenced", 1))
                await misled.send_rollup()
                await until(lambda: _fenced(zombie))
                assert not misled.heard.configured
        finally:
            stop.set()
            await serving
    (machine,) = await fleet.at_provider("fenced")
    assert (machine.state, machine.cluster) == (provider_pb2.MACHINE_STATE_IDLE, "")


async def _idle(fleet: Asking) -> bool:
    return set(await fleet.states("fenced")) == {"Idle"}


async def _ready(process: ShardProcess) -> bool:
    return process.kernels.compiled and process.core.published.ready


async def _fenced(process: ShardProcess) -> bool:
    return process.metrics.value("action_execute_outcomes_total", ("Bootstrap", "fenced")) >= 1


@pytest.mark.parametrize("who", ["admin", "other shard", "nobody", "two at once"])
async def test_a_shard_does_not_start_with_a_certificate_that_is_not_its_own(
    certificates: Certificates, tmp_path: Path, who: str
) -> None:
    """Its peers would refuse it one call at a time; one sentence at the start says whose it is and whose it must be."""
    own = "bigfleet://shard/shard-0"
    presented = {
        "admin": lambda: certificates.of(ADMIN),
        "other shard": lambda: certificates.of(Identity(Kind.SHARD, "shard-1")),
        "nobody": certificates.with_names,
        "two at once": lambda: certificates.with_names(own, "bigfleet://admin"),
    }[who]()
    settings, config = settings_from(
        {"fake-provider": True, "id": "shard-0", "data-dir": str(tmp_path / "data"), "listen": "127.0.0.1:0"}
        | {"metrics-addr": "0", "tls-cert": presented.cert, "tls-key": presented.key, "tls-ca": presented.ca}
    )
    with pytest.raises(TransportError) as refused:
        async with ShardProcess.opened(settings, config):
            pass
    said = str(refused.value)
    assert presented.cert in said and f"this is {own}:" in said and "\n" not in said
    assert "bigfleetctl certs issue shard shard-0" in said
    assert not (tmp_path / "data").exists(), "nothing was begun: no epoch is used up by a start that cannot work"
