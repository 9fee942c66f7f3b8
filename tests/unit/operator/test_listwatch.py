"""List and watch over a real socket, from a server that cuts, forgets and pages: nothing is withdrawn by mistake."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from bigfleet.operator.kube import client as client_module
from bigfleet.operator.kube import listwatch
from bigfleet.operator.kube.access import Access
from bigfleet.operator.kube.client import Client
from bigfleet.operator.kube.listwatch import ListWatch
from bigfleet.operator.kube.objects import Node
from tools.waiting import until

Answer = Callable[[dict[str, str], asyncio.StreamWriter], Awaitable[None]]


class Heard:
    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.names: set[str] = set()

    def seen(self, node: Node) -> None:
        self.events.append(("seen", node.metadata.name))
        self.names.add(node.metadata.name)

    def gone(self, key: str) -> None:
        self.events.append(("gone", key))
        self.names.discard(key)


@asynccontextmanager
async def watching(answers: list[Answer]) -> AsyncIterator[tuple[Heard, list[dict[str, str]], ListWatch[Node]]]:
    """Each request gets the next answer; after the last one requests wait for ever."""
    asked: list[dict[str, str]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
            parameters = {key: values[0] for key, values in parse_qs(urlsplit(line).query).items()}
            asked.append(parameters)
            if answers:
                await answers.pop(0)(parameters, writer)
            else:
                await asyncio.sleep(3600)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = Client(Access(f"http://127.0.0.1:{port}", ssl.create_default_context(), token="t"), qps=1000)
    heard = Heard()
    watch = ListWatch(client, "/api/v1/nodes", Node, heard)
    running = asyncio.create_task(watch.run())
    try:
        yield heard, asked, watch
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await client.close()
        server.close()


def node(name: str, version: int) -> dict[str, object]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


def event(kind: str, name: str, version: int) -> bytes:
    return json.dumps({"type": kind, "object": node(name, version)}).encode() + b"\n"


def bookmark(version: int, *, end: bool = False) -> bytes:
    meta: dict[str, object] = {"resourceVersion": str(version)}
    if end:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    return json.dumps({"type": "BOOKMARK", "object": {"metadata": meta}}).encode() + b"\n"


def expired() -> bytes:
    return (
        json.dumps({"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}).encode()
        + b"\n"
    )


def stream(*chunks: bytes, cut: bytes = b"") -> Answer:
    """A watch that says this and ends; `cut` is the beginning of a line whose rest never comes."""

    async def answer(_: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
        for chunk in (*chunks, *((cut,) if cut else ())):
            writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        if not cut:
            writer.write(b"0\r\n\r\n")
        await writer.drain()

    return answer


def reply(status: int, document: object) -> Answer:
    async def answer(_: dict[str, str], writer: asyncio.StreamWriter) -> None:
        body = json.dumps(document).encode()
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        await writer.drain()

    return answer


NO_STREAMED_LISTS = reply(422, {"code": 422, "reason": "Invalid", "message": "sendInitialEvents is forbidden"})


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listwatch, "FIRST_PAUSE", 0.01)


async def test_a_streamed_list_goes_on_as_a_watch_and_resumes_where_it_stood() -> None:
    answers = [
        stream(event("ADDED", "a", 1), event("ADDED", "b", 2), bookmark(5, end=True), event("DELETED", "a", 6)),
        stream(event("ADDED", "c", 7)),
    ]
    async with watching(answers) as (heard, asked, _):
        await until(lambda: heard.names == {"b", "c"})
        assert asked[0]["sendInitialEvents"] == "true"
        assert asked[1]["resourceVersion"] == "6"


async def test_a_server_that_cannot_stream_lists_is_read_in_pages() -> None:
    answers = [
        NO_STREAMED_LISTS,
        reply(200, {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [node("a", 1)]}),
        reply(200, {"metadata": {"resourceVersion": "9"}, "items": [node("b", 2)]}),
    ]
    async with watching(answers) as (heard, asked, watch):
        await until(lambda: heard.names == {"a", "b"})
        await until(lambda: len(asked) == 4)
        assert watch.complete.is_set()
        assert asked[2]["continue"] == "more"
        assert asked[3]["resourceVersion"] == "9"


async def test_half_a_list_is_no_list() -> None:
    answers = [
        stream(event("ADDED", "a", 1), event("ADDED", "b", 2)),
        stream(event("ADDED", "a", 1), event("ADDED", "b", 2), event("ADDED", "c", 3), bookmark(4, end=True)),
    ]
    async with watching(answers) as (heard, _, watch):
        await until(lambda: watch.complete.is_set())
        assert heard.events == [("seen", "a"), ("seen", "b"), ("seen", "c")]


async def test_a_forgotten_version_is_listed_anew_and_what_is_still_there_was_never_gone() -> None:
    answers = [
        stream(event("ADDED", "a", 1), event("ADDED", "b", 2), bookmark(3, end=True), expired()),
        stream(event("ADDED", "b", 2), event("ADDED", "c", 8), bookmark(9, end=True)),
    ]
    async with watching(answers) as (heard, _, watch):
        await until(lambda: heard.names == {"b", "c"})
        assert heard.events == [("seen", "a"), ("seen", "b"), ("seen", "c"), ("gone", "a")]
        assert watch.relists == 1


async def test_a_watch_cut_within_a_line_loses_nothing() -> None:
    answers = [
        stream(event("ADDED", "a", 1), bookmark(3, end=True), cut=event("ADDED", "b", 4)[:20]),
        stream(event("ADDED", "b", 4)),
    ]
    async with watching(answers) as (heard, asked, _):
        await until(lambda: heard.names == {"a", "b"})
        assert asked[1]["resourceVersion"] == "3"
        assert ("gone", "a") not in heard.events


async def test_throttling_and_refusals_are_waited_out() -> None:
    answers = [
        reply(429, {"code": 429, "reason": "TooManyRequests", "message": "later"}),
        reply(401, {"code": 401, "reason": "Unauthorized", "message": "who are you"}),
        stream(event("ADDED", "a", 1), bookmark(3, end=True)),
    ]
    async with watching(answers) as (heard, _, __):
        await until(lambda: heard.names == {"a"})


async def test_an_object_that_cannot_be_read_is_left_out_and_the_rest_is_not() -> None:
    broken = (
        json.dumps({"type": "ADDED", "object": {"metadata": {"name": "x"}, "spec": {"taints": 5}}}).encode() + b"\n"
    )
    async with watching([stream(broken, event("ADDED", "a", 1), bookmark(3, end=True))]) as (heard, _, watch):
        await until(lambda: heard.names == {"a"})
        assert watch.undecodable == 1


async def test_what_cannot_be_read_any_more_is_kept_over_a_new_list_until_it_is_deleted() -> None:
    broken = {"metadata": {"name": "a", "resourceVersion": "4"}, "spec": {"taints": 5}}
    answers = [
        stream(event("ADDED", "a", 1), bookmark(3, end=True), expired()),
        stream(json.dumps({"type": "ADDED", "object": broken}).encode() + b"\n", bookmark(5, end=True)),
        stream(json.dumps({"type": "DELETED", "object": broken}).encode() + b"\n", event("ADDED", "b", 9)),
    ]
    async with watching(answers) as (heard, _, __):
        await until(lambda: heard.names == {"b"})
        assert heard.events == [("seen", "a"), ("gone", "a"), ("seen", "b")]


async def test_a_first_list_is_handed_on_as_it_comes_and_is_complete_only_at_its_end() -> None:
    """A quarter of a million objects must not wait in memory for the last of them."""

    async def never_ends(_: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for chunk in (event("ADDED", "a", 1), event("ADDED", "b", 2)):
            writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        await writer.drain()
        await asyncio.sleep(3600)

    async with watching([never_ends]) as (heard, _, watch):
        await until(lambda: heard.names == {"a", "b"})
        assert not watch.complete.is_set()


async def test_a_token_that_expired_is_read_again_from_its_file_and_nothing_is_withdrawn(tmp_path: Path) -> None:
    """Kubernetes renews a token in its file; a server that no longer takes the old one ends the watch with 401."""
    token = tmp_path / "token"
    token.write_text("old")
    accepted = "old"
    refused = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal accepted, refused
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            parameters = {key: values[0] for key, values in parse_qs(urlsplit(head.split(" ")[1]).query).items()}
            if f"Bearer {accepted}\r\n" not in head:
                refused += 1
                await reply(401, {"code": 401, "reason": "Unauthorized", "message": "expired"})(parameters, writer)
            elif "sendInitialEvents" in parameters:
                await stream(event("ADDED", "a", 1), bookmark(3, end=True))(parameters, writer)
                accepted = "new"
            else:
                assert parameters["resourceVersion"] == "3", "the watch goes on where it stood"
                await stream(event("ADDED", "b", 4))(parameters, writer)
                await asyncio.sleep(3600)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    at = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    client = Client(Access(at, ssl.create_default_context(), token_file=token), qps=1000)
    heard = Heard()
    watch = ListWatch(client, "/api/v1/nodes", Node, heard)
    running = asyncio.create_task(watch.run())
    try:
        await until(lambda: refused >= 2)
        assert heard.events == [("seen", "a")]
        token.write_text("new")
        os.utime(token, ns=(1, 1))
        await until(lambda: heard.names == {"a", "b"})
        assert heard.events == [("seen", "a"), ("seen", "b")]
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await client.close()
        server.close()


async def test_a_kind_to_which_nothing_happens_is_watched_on_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """An API server sends bookmarks only where something happens: silence is no fault."""
    monkeypatch.setattr(client_module, "SILENT_SECONDS", 0.1)

    async def silent(_: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(3600)

    answers = [stream(event("ADDED", "a", 1), bookmark(3, end=True)), silent, silent, stream(event("ADDED", "b", 4))]
    happened: list[str] = []
    async with watching(answers) as (heard, asked, watch):
        watch.on_event = happened.append
        await until(lambda: heard.names == {"a", "b"})
        assert [each.get("resourceVersion") for each in asked[1:4]] == ["3", "3", "3"]
        assert "retry" not in happened
        assert watch.relists == 0
