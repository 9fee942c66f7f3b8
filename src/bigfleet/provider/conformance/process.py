"""Starting, killing and restarting the provider under test with the commands of the config, in any language.

`{addr}` `{host}` `{port}` `{state}` `{slots}` are substituted; without a `stop` command the whole process group gets
SIGKILL, because durability is about the stop nobody announced.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from bigfleet.provider.conformance.config import Config, UsageError, blob_for
from bigfleet.provider.conformance.transcript import scrub_blob

_LOG_TAIL = 2000


class BootError(UsageError):
    """The provider did not come up."""


class Launcher:
    """One provider process the suite owns, with its state kept across restarts."""

    def __init__(self, config: Config, command: str, slots: int, boot_limit: float) -> None:
        self._config = config
        self._command = command
        self._slots = slots
        self._boot_limit = boot_limit
        self._folder = tempfile.TemporaryDirectory(prefix="bigfleet-conformance-")
        self._log = Path(self._folder.name) / "provider.log"
        self._process: asyncio.subprocess.Process | None = None
        self.address = ""

    async def boot(self) -> str:
        """Start the provider and wait until it accepts connections; returns its address."""
        self.address = self._config.addr or free_address()
        arguments = _split(self._command, **self.values())
        with self._log.open("ab") as output:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *arguments,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    env=_environment(),
                )
            except OSError as error:
                raise UsageError(f"start command {arguments[0]!r} cannot be run: {error.strerror}") from error
        if not await self._listening():
            tail = scrub_blob(self.log(), blob_for(self._config))[-_LOG_TAIL:]
            await self.kill()
            raise BootError(f"the provider did not listen on {self.address} within {self._boot_limit:g} s\n{tail}")
        return self.address

    def log(self) -> str:
        """Everything the provider printed, over all its lives."""
        return self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""

    async def kill(self) -> None:
        """End the provider as a power cut would, or by the author's stop command."""
        process, self._process = self._process, None
        if self._config.stop:
            pid = str(process.pid) if process else ""
            await _run(_split(self._config.stop, pid=pid, **self.values()))
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    async def answers(self) -> bool:
        """Whether somebody listens where the provider did."""
        host, _, port = self.address.rpartition(":")
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(host.strip("[]"), int(port)), 1.0)
        except (OSError, TimeoutError):
            return False
        writer.close()
        return True

    async def close(self) -> None:
        await self.kill()
        self._folder.cleanup()

    def values(self) -> dict[str, str]:
        """What commands of the config may refer to."""
        host, _, port = self.address.rpartition(":")
        return {
            "addr": self.address,
            "host": host,
            "port": port,
            "state": str(Path(self._folder.name) / "state.db"),
            "slots": str(self._slots),
        }

    async def _listening(self) -> bool:
        host, _, port = self.address.rpartition(":")
        deadline = time.monotonic() + self._boot_limit
        while time.monotonic() < deadline:
            # A start command may hand over to a service manager and end well; ending badly is final.
            if self._process is None or self._process.returncode not in (None, 0):
                return False
            try:
                _, writer = await asyncio.wait_for(asyncio.open_connection(host.strip("[]"), int(port)), 0.2)
            except (OSError, TimeoutError):
                await asyncio.sleep(0.03)
                continue
            writer.close()
            return True
        return False


async def run_hook(command: str, values: Mapping[str, str]) -> None:
    """Run a fault hook of the config; `{machine}` and the launcher's own values are substituted."""
    await _run(_split(command, **values))


def free_address() -> str:
    """A loopback address nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def _split(command: str, **values: str) -> list[str]:
    words = shlex.split(command)
    if not words:
        raise UsageError("an empty command cannot be run")
    for name, value in values.items():
        words = [word.replace("{" + name + "}", value) for word in words]
    return words


def _environment() -> dict[str, str]:
    """Commands find the `python` and `bigfleet` of the installation that runs the suite first."""
    here = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": f"{here}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}


async def _run(arguments: list[str]) -> None:
    try:
        null = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(*arguments, stdin=null, stdout=null, env=_environment())
    except OSError as error:
        raise UsageError(f"command {arguments[0]!r} cannot be run: {error.strerror}") from error
    code = await process.wait()
    if code != 0:
        raise UsageError(f"command {shlex.join(arguments)} ended with code {code}")
