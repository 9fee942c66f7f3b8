"""Servers and channels over real sockets: TLS versions, identities, rotation, limits, and stops that end."""

import asyncio
import ipaddress
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from grpc_health.v1 import health_pb2, health_pb2_grpc

from bigfleet.transport import ADMIN, READONLY, Identity, Kind, Server, TlsFiles, TransportError, channel, require
from bigfleet.transport.advice import with_advice
from bigfleet.transport.authority import create_authority, issue, load_authority, sign_leaf
from bigfleet.transport.identity import cluster, provider, shard
from bigfleet.transport.pin import ServerPin
from tools.waiting import until

LOCAL = ("127.0.0.1", "::1")


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pki")
    create_authority(directory)
    issue(directory, shard("s0"), dns=["localhost"], addresses=LOCAL)
    issue(directory, cluster("c1"), addresses=LOCAL)
    issue(directory, ADMIN)
    issue(directory, provider("p1"), addresses=LOCAL)
    return directory


def files(pki: Path, stem: str, ca: Path | None = None) -> TlsFiles:
    return TlsFiles(str(pki / f"{stem}.crt"), str(pki / f"{stem}.key"), str(ca or pki / "ca.crt"))


def leaf_with(pki: Path, stem: str, names: list[x509.GeneralName], *, days: int = 1) -> TlsFiles:
    """A certificate of the authority with exactly these names."""
    certificate, key = sign_leaf(*load_authority(pki), common_name=stem, names=names, days=days)
    (pki / f"{stem}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (pki / f"{stem}.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files(pki, stem)


class Echo:
    """Handlers of every shape under the service `test.Echo`, on raw bytes."""

    def __init__(self) -> None:
        self.allowed: tuple[Identity | Kind, ...] = ()
        self.open_streams = asyncio.Event()
        self.seen: list[Identity | None] = []
        self.presented: list[bytes] = []

    async def once(self, request: bytes, context: Any) -> bytes:
        self.presented.extend(context.auth_context().get("x509_pem_cert", ()))
        if self.allowed:
            self.seen.append(await require(context, *self.allowed))
        return request

    async def fail(self, request: bytes, context: Any) -> bytes:
        raise RuntimeError(f"token {request!r}")

    async def talk(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        self.open_streams.set()
        async for request in requests:
            yield request

    async def stubborn(self, request: bytes, context: Any) -> bytes:
        self.open_streams.set()
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if self.released:
                    raise

    released = False

    def handlers(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            "test.Echo",
            {
                "Once": grpc.unary_unary_rpc_method_handler(self.once),
                "Fail": grpc.unary_unary_rpc_method_handler(self.fail),
                "Talk": grpc.stream_stream_rpc_method_handler(self.talk),
                "Stubborn": grpc.unary_unary_rpc_method_handler(self.stubborn),
            },
        )


@asynccontextmanager
async def serving(echo: Echo, address: str = "127.0.0.1:0", **options: Any) -> AsyncIterator[Server]:
    server = Server(address, **options)
    server.grpc.add_generic_rpc_handlers((echo.handlers(),))
    async with server:
        yield server


async def ask(server: Server, tls: TlsFiles, body: bytes = b"hi", method: str = "Once", **options: Any) -> bytes:
    async with channel(server.address, tls=tls, **options) as dialled:
        answer: bytes = await dialled.unary_unary(f"/test.Echo/{method}", None, None)(body, timeout=10)
        return answer


async def refusal(server: Server, tls: TlsFiles, method: str = "Once") -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ask(server, tls, method=method)
    return caught.value


async def openssl(server: Server, pki: Path, *arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *("openssl", "s_client", "-connect", server.address, "-alpn", "h2", "-brief", *arguments),
        *("-cert", str(pki / "cluster-c1.crt"), "-key", str(pki / "cluster-c1.key"), "-CAfile", str(pki / "ca.crt")),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode("latin-1")


async def test_tls12_is_refused_and_tls13_accepted_by_openssl(pki: Path) -> None:
    async with serving(Echo(), tls=files(pki, "shard-s0")) as server:
        code, output = await openssl(server, pki, "-tls1_2")
        assert code != 0
        assert "CONNECTION ESTABLISHED" not in output
        code, output = await openssl(server, pki, "-tls1_3")
        assert code == 0
        assert "Protocol version: TLSv1.3" in output


async def test_a_channel_refuses_a_server_that_only_speaks_tls12(pki: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(pki / "shard-s0.crt", pki / "shard-s0.key")
    context.set_alpn_protocols(["h2"])
    connected = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        writer.close()

    listener = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    port = listener.sockets[0].getsockname()[1]
    async with listener, channel(f"127.0.0.1:{port}", tls=files(pki, "cluster-c1")) as dialled:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await dialled.unary_unary("/test.Echo/Once", None, None)(b"hi", timeout=10)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert not connected.is_set()


def test_importing_grpc_first_makes_tls_refuse_to_start(pki: Path) -> None:
    program = (
        "import os; os.environ.pop('GRPC_SSL_CIPHER_SUITES', None)\n"
        "import grpc, bigfleet.transport.tls13 as tls13\n"
        "try: tls13.require_tls13_only()\n"
        "except tls13.TransportError as error: print(error)\n"
        "else: print('accepted')"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert "import bigfleet first" in result.stdout


async def test_a_caller_without_a_client_certificate_is_refused(pki: Path) -> None:
    async with serving(Echo(), tls=files(pki, "shard-s0")) as server:
        credentials = grpc.ssl_channel_credentials((pki / "ca.crt").read_bytes())
        async with grpc.aio.secure_channel(server.address, credentials) as dialled:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await dialled.unary_unary("/test.Echo/Once", None, None)(b"hi", timeout=10)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([], "presented: none"),
        ([x509.UniformResourceIdentifier("spiffe://fleet/cluster/c1")], "presented: none"),
        ([x509.DNSName("bigfleet.example.org")], "presented: none"),
        (
            [
                x509.UniformResourceIdentifier("bigfleet://cluster/a"),
                x509.UniformResourceIdentifier("bigfleet://admin"),
            ],
            "presented: bigfleet://cluster/a, bigfleet://admin",
        ),
        ([x509.UniformResourceIdentifier("bigfleet://robot/r2")], "'bigfleet://robot/r2' is not a BigFleet identity"),
        ([x509.UniformResourceIdentifier("bigfleet://cluster/")], "'bigfleet://cluster/' is not a BigFleet identity"),
    ],
)
async def test_a_certificate_must_name_exactly_one_identity(
    pki: Path, names: list[x509.GeneralName], said: str
) -> None:
    echo = Echo()
    async with serving(echo, tls=files(pki, "shard-s0")) as server:
        error = await refusal(server, leaf_with(pki, "odd", names))
        assert error.code() is grpc.StatusCode.PERMISSION_DENIED
        assert said in (error.details() or "")
        assert echo.presented == [], "the handler must not run"
        assert server.rpc_errors["/test.Echo/Once", "PERMISSION_DENIED"] == 1


async def test_a_service_may_choose_not_to_require_an_identity(pki: Path) -> None:
    async with serving(Echo(), tls=files(pki, "shard-s0"), require_identity=False) as server:
        assert await ask(server, leaf_with(pki, "nameless", [])) == b"hi"


async def test_other_uri_names_beside_the_identity_are_not_ours(pki: Path) -> None:
    echo = Echo()
    echo.allowed = (Kind.CLUSTER,)
    names = [
        x509.UniformResourceIdentifier("spiffe://mesh/x"),
        x509.UniformResourceIdentifier("bigfleet://cluster/c9"),
    ]
    async with serving(echo, tls=files(pki, "shard-s0")) as server:
        assert await ask(server, leaf_with(pki, "meshed", names)) == b"hi"
    assert echo.seen == [cluster("c9")]


async def test_an_expired_certificate_is_refused_both_ways(pki: Path) -> None:
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier("bigfleet://cluster/c1")]
    expired_client = leaf_with(pki, "expired", names, days=-1)
    async with serving(Echo(), tls=files(pki, "shard-s0")) as server:
        assert (await refusal(server, expired_client)).code() is grpc.StatusCode.UNAVAILABLE
    local = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    async with serving(Echo(), tls=leaf_with(pki, "expired-server", [*names, local], days=-1)) as server:
        assert (await refusal(server, files(pki, "cluster-c1"))).code() is grpc.StatusCode.UNAVAILABLE


async def test_certificates_of_another_authority_are_refused_both_ways(pki: Path, tmp_path: Path) -> None:
    create_authority(tmp_path)
    issue(tmp_path, cluster("c1"), addresses=LOCAL)
    async with serving(Echo(), tls=files(pki, "shard-s0")) as server:
        stranger = files(tmp_path, "cluster-c1", ca=pki / "ca.crt")
        assert (await refusal(server, stranger)).code() is grpc.StatusCode.UNAVAILABLE
        wary = files(pki, "cluster-c1", ca=tmp_path / "ca.crt")
        assert (await refusal(server, wary)).code() is grpc.StatusCode.UNAVAILABLE


async def test_a_server_must_be_reached_by_a_name_of_its_certificate(pki: Path) -> None:
    async with serving(Echo(), tls=leaf_with(pki, "elsewhere", [x509.DNSName("elsewhere.example.org")])) as server:
        client = files(pki, "cluster-c1")
        assert (await refusal(server, client)).code() is grpc.StatusCode.UNAVAILABLE
        assert await ask(server, client, server_name="elsewhere.example.org") == b"hi"


async def test_require_names_what_it_wants_and_what_it_got(pki: Path) -> None:
    echo = Echo()
    async with serving(echo, tls=files(pki, "shard-s0")) as server:
        echo.allowed = (READONLY, ADMIN)
        assert await ask(server, files(pki, "admin")) == b"hi"
        error = await refusal(server, files(pki, "cluster-c1"))
        assert error.code() is grpc.StatusCode.PERMISSION_DENIED
        assert error.details() == "requires bigfleet://readonly or bigfleet://admin, presented bigfleet://cluster/c1"
        echo.allowed = (cluster("c2"),)
        error = await refusal(server, files(pki, "cluster-c1"))
        assert error.details() == "requires bigfleet://cluster/c2, presented bigfleet://cluster/c1"
        echo.allowed = (Kind.SHARD,)
        error = await refusal(server, files(pki, "admin"))
        assert error.details() == "requires bigfleet://shard/<id>, presented bigfleet://admin"
    assert echo.seen == [ADMIN]


async def test_plaintext_on_loopback_skips_identity_checks() -> None:
    echo = Echo()
    echo.allowed = (ADMIN,)
    async with serving(echo) as server:
        assert await ask(server, TlsFiles()) == b"hi"
    assert echo.seen == [None]


async def test_a_unix_socket_may_be_plaintext(tmp_path: Path) -> None:
    async with serving(Echo(), address=f"unix:{tmp_path}/echo.sock") as server:
        assert await ask(server, TlsFiles()) == b"hi"


@pytest.mark.parametrize("address", [":0", "0.0.0.0:0", "[::]:0", "host.example.org:0", "10.0.0.1:0"])
async def test_plaintext_beyond_this_machine_refuses_to_listen_and_to_dial(address: str) -> None:
    with pytest.raises(TransportError, match="--insecure"):
        Server(address)
    if not address.startswith(":"):
        with pytest.raises(TransportError, match="refusing to dial"):
            channel(address)


async def test_insecure_is_an_explicit_choice() -> None:
    async with serving(Echo(), address="0.0.0.0:0", insecure=True) as server:
        assert await ask(server, TlsFiles()) == b"hi"
    await channel("shard.example.org:7780", insecure=True).close()


async def test_a_busy_port_fails_to_bind() -> None:
    async with serving(Echo()) as server:
        with pytest.raises(TransportError, match="cannot listen on"):
            Server(server.address)


async def test_a_rotated_server_leaf_is_presented_to_the_next_connection(tmp_path: Path, pki: Path) -> None:
    create_authority(tmp_path)
    issue(tmp_path, shard("s0"), addresses=LOCAL)
    issue(tmp_path, ADMIN)
    tls = files(tmp_path, "shard-s0")
    async with serving(Echo(), tls=tls) as server:
        before = await presented_serial(server, tmp_path)
        issue(tmp_path, shard("s0"), addresses=LOCAL, force=True)
        after = await presented_serial(server, tmp_path)
        assert after == serial(Path(tls.cert)) != before
        Path(tls.cert).unlink()
        assert await presented_serial(server, tmp_path) == after, "a vanished file keeps the pair in use"
        Path(tls.cert).write_bytes((pki / "shard-s0.crt").read_bytes())
        assert await presented_serial(server, tmp_path) == after, "a certificate without its key is not taken"


async def presented_serial(server: Server, pki: Path) -> int:
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    context.set_alpn_protocols(["h2"])
    _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return x509.load_der_x509_certificate(der).serial_number


def serial(path: Path) -> int:
    return x509.load_pem_x509_certificate(path.read_bytes()).serial_number


async def test_a_rotated_client_leaf_is_presented_by_the_next_call_while_streams_go_on(
    pki: Path, tmp_path: Path
) -> None:
    for name in ("ca.crt", "ca.key"):
        (tmp_path / name).write_bytes((pki / name).read_bytes())
    issue(tmp_path, cluster("c1"))
    tls = files(tmp_path, "cluster-c1")
    echo = Echo()
    async with serving(echo, tls=files(pki, "shard-s0")) as server, channel(server.address, tls=tls) as dialled:
        once = dialled.unary_unary("/test.Echo/Once", None, None)
        talk = dialled.stream_stream("/test.Echo/Talk", None, None)()
        await talk.write(b"before")
        assert await talk.read() == b"before"
        await once(b"1", timeout=10)
        issue(tmp_path, cluster("c1"), force=True)
        await once(b"2", timeout=10)
        old, new = (x509.load_pem_x509_certificate(pem).serial_number for pem in echo.presented)
        assert old != new == serial(Path(tls.cert))
        await talk.write(b"after")
        assert await talk.read() == b"after"
        await talk.done_writing()
        assert await talk.read() is grpc.aio.EOF


async def test_an_expected_server_identity_admits_only_its_holder(pki: Path) -> None:
    client = files(pki, "shard-s0")
    async with serving(Echo(), tls=files(pki, "provider-p1")) as server:
        async with channel(server.address, tls=client, server_identity=provider("p1")) as dialled:
            await asyncio.wait_for(dialled.channel_ready(), 10)
            assert await dialled.unary_unary("/test.Echo/Once", None, None)(b"hi", timeout=10) == b"hi"
        async with channel(server.address, tls=client, server_identity=provider("p2")) as dialled:
            once = dialled.unary_unary("/test.Echo/Once", None, None)
            error = await eventually_refused(once, "presented")
            assert error.code() is grpc.StatusCode.UNAVAILABLE
            assert error.details() == (
                f"expected bigfleet://provider/p2 at {server.address}, presented bigfleet://provider/p1"
            )


async def eventually_refused(once: Any, word: str) -> grpc.aio.AioRpcError:
    """The refusal that names what was presented; until the first look ends, refusals say so."""

    async def refused() -> grpc.aio.AioRpcError:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await once(b"hi", timeout=10)
        return caught.value

    return await until(refused, lambda error: word in (error.details() or ""))


async def test_a_server_that_changes_identity_behind_a_pinned_channel_is_refused(pki: Path, tmp_path: Path) -> None:
    for name in ("ca.crt", "ca.key"):
        (tmp_path / name).write_bytes((pki / name).read_bytes())
    issue(tmp_path, provider("p1"), addresses=LOCAL)
    served = files(tmp_path, "provider-p1")
    echo = Echo()
    async with serving(echo, tls=served) as server:
        address = server.address
        dialled = channel(address, tls=files(pki, "shard-s0"), server_identity=provider("p1"))
        await asyncio.wait_for(dialled.channel_ready(), 10)
        once = dialled.unary_unary("/test.Echo/Once", None, None)
        await once(b"1", timeout=10)
    async with dialled:
        async with serving(Echo(), address, tls=files(pki, "shard-s0")):
            error = await eventually_refused(once, "CERTIFICATE_VERIFY_FAILED")
            assert error.code() is grpc.StatusCode.UNAVAILABLE
        issue(tmp_path, provider("p1"), addresses=LOCAL, force=True)
        async with serving(Echo(), address, tls=served):
            # A rotated leaf of the right identity is admitted again.
            await until(lambda: answered(once))


async def answered(once: Any) -> bool:
    try:
        await once(b"2", timeout=10)
    except grpc.aio.AioRpcError:
        return False
    return True


async def test_messages_far_above_four_mebibytes_pass_both_ways() -> None:
    body = b"x" * (48 << 20)
    async with serving(Echo()) as server:
        assert len(await ask(server, TlsFiles(), body)) == len(body)


async def test_stopping_with_an_open_stream_ends_within_its_grace() -> None:
    echo = Echo()
    server = Server("127.0.0.1:0")
    server.grpc.add_generic_rpc_handlers((echo.handlers(),))
    await server.start()
    async with channel(server.address) as dialled:
        talk = dialled.stream_stream("/test.Echo/Talk", None, None)()
        await talk.write(b"hi")
        await echo.open_streams.wait()
        await asyncio.wait_for(server.stop(grace=0.2), 10)
        with pytest.raises((grpc.aio.AioRpcError, asyncio.CancelledError)):
            while await talk.read() is not grpc.aio.EOF:
                pass


async def test_stopping_does_not_wait_for_a_handler_that_ignores_cancellation() -> None:
    echo = Echo()
    server = Server("127.0.0.1:0")
    server.grpc.add_generic_rpc_handlers((echo.handlers(),))
    await server.start()
    async with channel(server.address) as dialled:
        call = dialled.unary_unary("/test.Echo/Stubborn", None, None)(b"", timeout=60)
        await echo.open_streams.wait()
        await asyncio.wait_for(server.stop(grace=0.1), 10)
        echo.released = True
        call.cancel()


async def test_a_server_that_never_started_can_be_stopped() -> None:
    await asyncio.wait_for(Server("127.0.0.1:0").stop(grace=0.1), 10)


async def test_streams_may_end_politely_when_a_stop_begins() -> None:
    async with serving(Echo()) as server:
        assert not server.stopping.is_set()
    assert server.stopping.is_set()


async def test_the_health_service_answers_and_turns_not_serving_first(pki: Path) -> None:
    request = health_pb2.HealthCheckRequest()
    async with serving(Echo(), tls=files(pki, "shard-s0")) as server:
        nameless = leaf_with(pki, "prober", [])
        async with channel(server.address, tls=nameless) as dialled:
            health = health_pb2_grpc.HealthStub(dialled)
            assert (await health.Check(request, timeout=10)).status == health_pb2.HealthCheckResponse.SERVING
            watch = health.Watch(request)
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
            await server.set_serving(False)
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            await server.set_serving(True)
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
            stopping = asyncio.create_task(server.stop(grace=5))
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            watch.cancel()
            await stopping


async def test_an_escaped_exception_is_internal_without_its_text() -> None:
    async with serving(Echo()) as server:
        error = await refusal(server, TlsFiles(), method="Fail")
        assert error.code() is grpc.StatusCode.INTERNAL
        assert "token" not in (error.details() or "")
        assert server.rpc_errors["/test.Echo/Fail", "INTERNAL"] == 1


@pytest.mark.parametrize(
    ("cert", "key", "ca"), [("c", "", ""), ("", "k", ""), ("", "", "a"), ("c", "k", ""), ("c", "", "a"), ("", "k", "a")]
)
def test_some_of_the_tls_flags_are_a_start_up_error(cert: str, key: str, ca: str) -> None:
    with pytest.raises(TransportError, match="together, or none"):
        TlsFiles(cert, key, ca)


async def test_bad_material_is_a_start_up_error_naming_the_file(pki: Path, tmp_path: Path) -> None:
    crossed = TlsFiles(str(pki / "shard-s0.crt"), str(pki / "admin.key"), str(pki / "ca.crt"))
    with pytest.raises(TransportError, match=r"admin\.key is not the key of"):
        Server("127.0.0.1:0", tls=crossed)
    with pytest.raises(TransportError, match=r"cannot read .*absent\.crt"):
        Server("127.0.0.1:0", tls=files(pki, "absent"))
    (tmp_path / "empty.pem").write_bytes(b"")
    with pytest.raises(TransportError, match=r"empty\.pem holds no PEM certificate"):
        channel("127.0.0.1:1", tls=files(pki, "admin", ca=tmp_path / "empty.pem"))


async def test_a_certificate_for_other_names_is_answered_with_the_command_that_issues_the_right_one(pki: Path) -> None:
    elsewhere = leaf_with(pki, "elsewhere", [x509.DNSName("shard.example.org")])
    async with serving(Echo(), tls=elsewhere) as server:
        details = (await refusal(server, files(pki, "cluster-c1"))).details() or ""
        said = with_advice(details, "shard", server.address)
        assert f"the certificate at {server.address} was not issued for 127.0.0.1" in said
        assert "`bigfleetctl certs issue shard NAME --ip 127.0.0.1 --force`" in said
        assert with_advice(details, "provider") == said.replace("issue shard", "issue provider")
        pin = ServerPin(
            server.address, files(pki, "cluster-c1"), (pki / "ca.crt").read_bytes(), "", Identity(Kind.SHARD, "s0")
        )
        with pytest.raises(TransportError, match=r"issue shard NAME --ip 127\.0\.0\.1 --force"):
            await pin.look()


async def test_certificates_towards_a_plaintext_server_are_answered_with_leaving_them_out(pki: Path) -> None:
    async with serving(Echo()) as server:
        details = (await refusal(server, files(pki, "cluster-c1"))).details() or ""
        assert with_advice(details, "shard", server.address).startswith(f"{server.address} serves plaintext; leave")


def test_what_a_peer_said_itself_is_passed_on_as_it_is() -> None:
    assert with_advice("machine m-1 does not exist", "shard", "x:1") == "machine m-1 does not exist"
