"""HTTP over a real socket, towards servers that keep, cut, split and garble."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bigfleet.operator.kube.http import BrokenError, Http, target

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Case: Kept\r\n\r\nhi"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Server:
    """Gives one prepared answer per request, in pieces; None cuts the connection instead."""

    def __init__(self, *answers: bytes | tuple[bytes, ...] | None) -> None:
        self.answers = list(answers)
        self.connections = 0
        self.requests: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self.answers:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length:")), 0
                )
                self.requests.append(head + await reader.readexactly(length))
                answer = self.answers.pop(0)
                if answer is None:
                    return
                for piece in answer if isinstance(answer, tuple) else (answer,):
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
            await asyncio.sleep(60)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def asking(server: Server) -> AsyncIterator[Http]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    http = Http(f"http://127.0.0.1:{port}/base", ssl.create_default_context(), agent="t", connect_seconds=5)
    try:
        yield http
    finally:
        http.close()
        listening.close()


async def test_one_connection_serves_one_request_after_the_other() -> None:
    server = Server(OK, OK)
    async with asking(server) as http:
        head, body = await http.ask("GET", target("/a", {"q": "x y"}), {"Authorization": "Bearer s"}, None, 5)
        assert (head.status, head.headers["x-case"], body) == (200, "Kept", b"hi")
        await http.ask("PATCH", "/b", {}, b"{}", 5)
    assert server.connections == 1
    assert server.requests[0].startswith(b"GET /base/a?q=x+y HTTP/1.1\r\n")
    assert b"Authorization: Bearer s\r\n" in server.requests[0] and server.requests[1].endswith(b"\r\n\r\n{}")


async def test_an_answer_in_chunks_is_one_body_however_it_is_split() -> None:
    server = Server((CHUNKED[:20], CHUNKED[20:] + b"3\r\nab", b"c\r\n2;x=1\r\nde\r\n", b"0\r\n\r\n"))
    async with asking(server) as http:
        assert (await http.ask("GET", "/", {}, None, 5))[1] == b"abcde"


async def test_a_connection_that_went_while_it_was_kept_is_replaced_unless_something_is_made() -> None:
    server = Server(OK, None, OK, None)
    async with asking(server) as http:
        await http.ask("GET", "/", {}, None, 5)
        assert (await http.ask("GET", "/", {}, None, 5))[1] == b"hi"
        assert server.connections == 2
        with pytest.raises(BrokenError, match="closed the connection"):
            await http.ask("POST", "/", {}, b"{}", 5)
    assert len(server.requests) == 4, "what makes something is not sent twice"


async def test_many_at_once_wait_for_a_place() -> None:
    server = Server(*[OK] * 40)
    async with asking(server) as http:
        answers = await asyncio.gather(*(http.ask("GET", "/", {}, None, 5) for _ in range(40)))
    assert [body for _, body in answers] == [b"hi"] * 40
    assert server.connections <= 32


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"SSH-2.0-x\r\n\r\n", "not an HTTP answer"),
        ((CHUNKED, b"zz\r\n"), "ValueError"),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi",), "no answer in time"),
    ],
)
async def test_what_is_no_whole_answer_is_an_error(answer: bytes, said: str) -> None:
    async with asking(Server(answer)) as http:
        with pytest.raises(BrokenError, match=said):
            await http.ask("GET", "/", {}, None, 0.3)


@pytest.mark.parametrize("ends", [b"", b"Content-Length: 9\r\n"], ids=["by closing", "by a length"])
async def test_a_stream_of_any_form_ends_when_it_is_silent(ends: bytes) -> None:
    async with asking(Server((b"HTTP/1.1 200 OK\r\n" + ends + b"\r\n", b"a"))) as http:
        with pytest.raises(BrokenError, match="no answer in time"):
            async with http.stream("/", {}, 0.3) as (_, pieces), asyncio.timeout(20):
                async for _piece in pieces:
                    pass


async def test_a_stream_comes_piece_by_piece_and_ends_when_it_is_silent() -> None:
    heard = []
    async with asking(Server((CHUNKED, b"1\r\na\r\n", b"1\r\nb\r\n"))) as http:
        with pytest.raises(BrokenError, match="no answer in time"):
            async with http.stream("/", {}, 0.3) as (head, pieces):
                assert head.status == 200
                async for piece in pieces:
                    heard.append(piece)
    assert heard == [b"a", b"b"]
