"""The HTTP pages over real sockets: contents, readiness, limits, and clients that misbehave."""

import asyncio
import os
import resource
import socket
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bigfleet.transport.endpoints import MAX_CONNECTIONS, HttpEndpoints
from bigfleet.transport.errors import TransportError
from bigfleet.transport.logs import LogFormat, configure


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[HttpEndpoints]:
    options.setdefault("registry", CollectorRegistry())
    endpoints = HttpEndpoints("127.0.0.1:0", **options)
    await endpoints.start()
    try:
        yield endpoints
    finally:
        await endpoints.stop()


async def exchange(endpoints: HttpEndpoints, request: bytes) -> tuple[int, str, str]:
    """Status, head and body of the answer; status 0 when the connection was cut without one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", endpoints.port)
    answer = b""
    with suppress(ConnectionError):
        writer.write(request)
        answer = await asyncio.wait_for(reader.read(), 20)
    head, _, body = answer.partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]) if head else 0, head.decode(), body.decode()


async def get(endpoints: HttpEndpoints, path: str, method: str = "GET") -> tuple[int, str, str]:
    return await exchange(endpoints, f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


async def test_metrics_are_rendered_from_the_registry_off_the_loop() -> None:
    rendered_in: list[str] = []

    class Fleet(Collector):
        def collect(self) -> Iterable[Metric]:
            rendered_in.append(threading.current_thread().name)
            yield GaugeMetricFamily("bigfleet_machines", "machines", value=3)

    registry = CollectorRegistry()
    registry.register(Fleet())
    Gauge("bigfleet_up", "up", registry=registry).set(1)
    rendered_in.clear()
    async with serving(registry=registry) as endpoints:
        status, head, body = await get(endpoints, "/metrics?name=x")
    assert status == 200
    assert "text/plain; version=" in head
    assert "bigfleet_machines 3.0" in body
    assert "bigfleet_up 1.0" in body
    assert rendered_in
    assert threading.main_thread().name not in rendered_in


async def test_health_is_always_there_and_readiness_gives_reasons() -> None:
    reasons: list[str] = ["first provider reconcile not complete"]
    async with serving(ready=[lambda: reasons[0] if reasons else None, lambda: None]) as endpoints:
        assert (await get(endpoints, "/healthz"))[::2] == (200, "")
        assert (await get(endpoints, "/readyz"))[::2] == (503, "first provider reconcile not complete\n")
        reasons.clear()
        assert (await get(endpoints, "/readyz"))[::2] == (200, "")
        endpoints.begin_stop()
        assert (await get(endpoints, "/readyz"))[::2] == (503, "shutting down\n")
        assert (await get(endpoints, "/healthz"))[0] == 200


async def test_other_paths_and_methods_are_refused() -> None:
    async with serving() as endpoints:
        assert (await get(endpoints, "/"))[0] == 404
        assert (await get(endpoints, "/metrics", method="POST"))[0] == 405
        status, head, body = await get(endpoints, "/metrics", method="HEAD")
        assert (status, body) == (200, "")
        assert "Content-Length: " in head


@pytest.mark.parametrize("request_bytes", [b"\r\n\r\n", b"GET /metrics\r\n\r\n", b"\x16\x03\x01 x y\r\n\r\n"])
async def test_what_is_not_http_is_a_bad_request(request_bytes: bytes) -> None:
    async with serving() as endpoints:
        assert (await exchange(endpoints, request_bytes))[0] == 400


async def test_headers_are_bounded() -> None:
    async with serving() as endpoints:
        # Cutting off a client that is still sending resets the connection, which may swallow the 431.
        status, _, _ = await exchange(endpoints, b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 100_000)
        assert status in (0, 431)
        assert (await get(endpoints, "/healthz"))[0] == 200


async def test_a_client_that_drips_its_request_is_cut_off() -> None:
    async with serving(read_seconds=0.1) as endpoints:
        reader, writer = await asyncio.open_connection("127.0.0.1", endpoints.port)
        writer.write(b"GET /healthz HTTP/1.1\r\n")
        assert (await asyncio.wait_for(reader.read(), 20)).startswith(b"HTTP/1.1 408")
        writer.close()


async def test_slow_clients_cannot_take_the_last_connection_from_a_probe() -> None:
    async with serving() as endpoints:
        idle = [await asyncio.open_connection("127.0.0.1", endpoints.port) for _ in range(3 * MAX_CONNECTIONS)]
        for _ in range(20):
            assert (await get(endpoints, "/healthz"))[0] == 200
        # Those who came last are still there, and no more of them than there may be.
        for _, writer in idle:
            writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        answers = []
        for reader, writer in idle:
            with suppress(ConnectionError):
                answers.append(await asyncio.wait_for(reader.read(), 20))
            writer.close()
        served = sum(answer.startswith(b"HTTP/1.1 200") for answer in answers)
        assert MAX_CONNECTIONS - 30 <= served <= MAX_CONNECTIONS


async def test_probes_are_answered_when_there_are_no_file_descriptors_left(capsys: pytest.CaptureFixture[str]) -> None:
    configure(log_format=LogFormat.JSON)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with serving() as endpoints:
        probes = [socket.socket() for _ in range(30)]
        taken: list[int] = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(_number, probes)) + 60, hard))
        try:
            with suppress(OSError):
                while True:
                    taken.append(os.dup(0))
            for probe in probes:
                probe.setblocking(False)
                await asyncio.get_running_loop().sock_connect(probe, ("127.0.0.1", endpoints.port))
                await asyncio.get_running_loop().sock_sendall(probe, b"GET /healthz HTTP/1.1\r\n\r\n")
                answer = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(probe, 100), 20)
                assert answer.startswith(b"HTTP/1.1 200")
        finally:
            for number in taken:
                os.close(number)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for probe in probes:
                probe.close()
        assert (await get(endpoints, "/healthz"))[0] == 200
    said = [line for line in capsys.readouterr().err.splitlines() if "no file descriptors left" in line]
    assert 1 <= len(said) <= 5
    assert not any("Traceback" in line for line in said)


def _number(each: socket.socket) -> int:
    return each.fileno()


async def test_a_failing_collector_is_an_answer_not_a_crash() -> None:
    class Broken(Collector):
        def describe(self) -> Iterable[Metric]:
            return []

        def collect(self) -> Iterable[Metric]:
            raise RuntimeError("boom")

    registry = CollectorRegistry()
    registry.register(Broken())
    async with serving(registry=registry) as endpoints:
        assert (await get(endpoints, "/metrics"))[::2] == (500, "")
        assert (await get(endpoints, "/healthz"))[0] == 200


@pytest.mark.parametrize("address", ["", "0"])
async def test_switched_off(address: str) -> None:
    endpoints = HttpEndpoints(address, registry=CollectorRegistry())
    await endpoints.start()
    assert not endpoints.enabled
    assert endpoints.port == 0
    await endpoints.stop()


async def test_a_busy_port_is_named() -> None:
    async with serving() as endpoints:
        second = HttpEndpoints(f"127.0.0.1:{endpoints.port}", registry=CollectorRegistry())
        with pytest.raises(TransportError, match=f"127.0.0.1:{endpoints.port}"):
            await second.start()


async def test_stopping_ends_open_connections() -> None:
    async with serving() as endpoints:
        reader, writer = await asyncio.open_connection("127.0.0.1", endpoints.port)
        writer.write(b"GET /")
        await get(endpoints, "/healthz")
    with suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), 20) == b""
    writer.close()
