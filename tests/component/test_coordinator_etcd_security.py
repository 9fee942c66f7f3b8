"""etcd that asks for certificates and a password: the coordinator brings both, and is refused without."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aetcd.rpc import rpc_pb2, rpc_pb2_grpc

from bigfleet.coordinator.core.records import Row
from bigfleet.coordinator.server.settings import EtcdSettings
from bigfleet.coordinator.stores.etcd import EtcdStore
from bigfleet.coordinator.stores.store import StoreError
from bigfleet.transport import ADMIN, TlsFiles, authority, channel
from tools.etcd import EtcdCluster


def files(pki: Path) -> TlsFiles:
    return TlsFiles(str(pki / "admin.crt"), str(pki / "admin.key"), str(pki / "ca.crt"))


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[tuple[str, Path]]:
    """An etcd behind TLS 1.3 and client certificates, put before it because the etcd at hand speaks 1.2 only."""
    pki = tmp_path / "pki"
    authority.create_authority(pki)
    authority.issue(pki, ADMIN, addresses=["127.0.0.1"])
    tls = files(pki)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(tls.cert, tls.key)
    context.load_verify_locations(tls.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    etcd = EtcdCluster(tmp_path / "etcd")
    etcd.start()
    carrying: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*etcd.endpoints[0].split(":"))
        for source, target in ((reader, far_writer), (far_reader, writer)):
            carrying.add(asyncio.create_task(carry(source, target)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", pki
    server.close()
    for task in carrying:
        task.cancel()
    await asyncio.gather(*carrying, return_exceptions=True)
    etcd.stop()


async def carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        target.write(data)
        await target.drain()
    target.close()


async def require_password(endpoint: str, tls: TlsFiles) -> None:
    async with channel(endpoint, tls=tls) as opened:
        stub = rpc_pb2_grpc.AuthStub(opened)
        await stub.UserAdd(rpc_pb2.AuthUserAddRequest(name="root", password="secret"))
        await stub.RoleAdd(rpc_pb2.AuthRoleAddRequest(name="root"))
        await stub.UserGrantRole(rpc_pb2.AuthUserGrantRoleRequest(user="root", role="root"))
        await stub.AuthEnable(rpc_pb2.AuthEnableRequest())


async def test_certificates_and_a_password_are_brought_and_needed(guarded: tuple[str, Path], tmp_path: Path) -> None:
    endpoint, pki = guarded
    tls = files(pki)
    await require_password(endpoint, tls)
    (tmp_path / "password").write_text("secret\n")
    settings = EtcdSettings((endpoint,), "/secure", tls, "root", str(tmp_path / "password"))
    store = EtcdStore(settings, "n0", "127.0.0.1:1")
    assert (await store.campaign()).term == 1
    await store.commit([Row("shard", "s", b"{}")])
    await store.close()
    plain = EtcdStore(EtcdSettings((endpoint,), "/secure"), "n1", "127.0.0.1:2")
    with pytest.raises(StoreError):
        await plain.campaign()
    await plain._calls.close()
    nameless = EtcdStore(EtcdSettings((endpoint,), "/secure", tls), "n2", "127.0.0.1:3")
    with pytest.raises(StoreError, match="user name is empty"):
        await nameless.campaign()
    await nameless._calls.close()
