"""The fake's control socket: one JSON command per line in, one JSON answer per line out, on this machine only.

    {"do": "lose-hosts", "zone": "eu-west-1a", "count": 2}   →   {"ok": true, "machines": ["…", "…"]}
    {"do": "status"}                                         →   {"ok": true, "IDLE": 32, "SPECULATIVE": 440, …}
A command that cannot be carried out is answered with the reason and changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

from bigfleet.provider.fake.backend import FakeProvider
from bigfleet.provider.fake.commands import parse_command
from bigfleet.provider.fake.fields import CatalogueError
from bigfleet.transport.address import is_local, split
from bigfleet.transport.errors import NoAnswerError, TransportError

_LINE_LIMIT = 64 * 1024
_UNIX = "unix:"


class ControlSocket:
    """Serves commands for one fake."""

    def __init__(self, address: str, provider: FakeProvider) -> None:
        require_local_address(address, "--control")
        self.address = address
        self._provider = provider
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        try:
            if self.address.startswith(_UNIX):
                path = self.address.removeprefix(_UNIX)
                self._server = await asyncio.start_unix_server(self._serve, path, limit=_LINE_LIMIT)
            else:
                host, port = split(self.address)
                self._server = await asyncio.start_server(self._serve, host, port, limit=_LINE_LIMIT)
                self.address = f"{host}:{self._server.sockets[0].getsockname()[1]}"
        except OSError as error:
            raise TransportError(f"--control {self.address} cannot be listened on: {error.strerror}") from error

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self._open:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while line := await reader.readline():
                writer.write(json.dumps(self._answer(line)).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError):
            return  # a line beyond the limit, or a caller that left
        finally:
            self._open.discard(writer)
            writer.close()

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            document = json.loads(line)
        except ValueError:
            return {"ok": False, "error": 'a command is one JSON object per line, such as {"do": "status"}'}
        if document == {"do": "status"}:
            return {"ok": True, **self._provider.counts()}
        try:
            return {"ok": True, "machines": self._provider.execute(parse_command(document))}
        except CatalogueError as error:
            return {"ok": False, "error": str(error)}


async def send_command(address: str, document: dict[str, Any]) -> dict[str, Any]:
    """Send one command to a running fake and return its answer."""
    require_local_address(address, "--control")
    try:
        if address.startswith(_UNIX):
            reader, writer = await asyncio.open_unix_connection(address.removeprefix(_UNIX), limit=_LINE_LIMIT * 1024)
        else:
            reader, writer = await asyncio.open_connection(*split(address), limit=_LINE_LIMIT * 1024)
    except OSError as error:
        raise NoAnswerError(
            f"no fake provider answers at {address}: {error.strerror}; start one with --control {address}"
        ) from error
    try:
        writer.write(json.dumps(document).encode() + b"\n")
        answer: dict[str, Any] = json.loads(await reader.readline() or b'{"ok": false, "error": "connection closed"}')
        return answer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def require_local_address(address: str, flag: str) -> None:
    """Refuse anything but loopback and unix sockets: a fake must never be mistaken for a provider."""
    if not is_local(address):
        raise TransportError(f"{flag} {address} can be reached from elsewhere; give 127.0.0.1:PORT or unix:/path")
