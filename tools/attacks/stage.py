"""What is attacked: programs of one source tree, started by their command lines, each attack in a folder of its own."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tools.attacks.cloud import Cloud
from tools.processes import Program, free_address, page_of
from tools.waiting import until

BIGFLEET = (sys.executable, "-c", "from bigfleet.cli.bigfleet import main; main()")
# Short pauses, so that what goes wrong goes wrong soon; nothing that decides what is right.
QUICK: dict[str, Any] = {
    "cycle-interval": "500ms",
    "early-cycle-interval": "200ms",
    "reconcile-interval": "500ms",
    "loss-confirm-interval": "500ms",
    "reclaim-hold": "0",
    "reclaim-cap-fraction": 0,
    "reclaim-grace": "3s",
}
# Kernels of a tree nobody has run yet are compiled first.
READY_SECONDS = 600.0


@dataclass(frozen=True)
class Outcome:
    """How an attack ended, None where nobody can say, and what was seen."""

    withstood: bool | None
    told: str


Attack = Callable[["Stage"], Awaitable[Outcome]]


@dataclass
class Stage:
    """One tree and one folder."""

    tree: Path
    folder: Path
    programs: list[Program] = field(default_factory=list)

    def environment(self, *, compiled: bool = False) -> dict[str, str]:
        return {"PYTHONPATH": str(self.tree / "src"), **({} if compiled else {"NUMBA_DISABLE_JIT": "1"})}

    def program(self, name: str, argv: list[str], *, compiled: bool = False) -> Program:
        made = Program(name, argv, self.folder, self.environment(compiled=compiled))
        self.programs.append(made)
        return made

    def say(self, *argv: str, seconds: float = 120.0, command: str = "bigfleet") -> tuple[int, str]:
        """Type a command of the tree; its exit code and everything it wrote."""
        scripts = tomllib.loads((self.tree / "pyproject.toml").read_text())["project"]["scripts"]
        module, _, function = scripts[command].partition(":")
        call = [sys.executable, "-c", f"import sys; from {module} import {function}; sys.exit({function}())", *argv]
        environment = {**os.environ, **self.environment()}
        try:
            ended = subprocess.run(
                call, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired as late:
            return -1, f"{_text(late.stdout)}{_text(late.stderr)}"
        return ended.returncode, ended.stdout + ended.stderr

    def run(self, *argv: str) -> str:
        """What the tree's interpreter prints."""
        environment = {**os.environ, **self.environment()}
        call = [sys.executable, *argv]
        return subprocess.run(call, env=environment, capture_output=True, text=True, timeout=120, check=True).stdout

    def shard(self, clouds: Mapping[str, str], *, compiled: bool = False, **settings: Any) -> Shard:
        return Shard(self, clouds, compiled=compiled, settings=settings)

    def end(self) -> None:
        for program in self.programs:
            if program.alive:
                program.kill()


class Shard:
    """A shard process of the tree on fixed loopback ports, over any number of lives."""

    def __init__(self, stage: Stage, clouds: Mapping[str, str], *, compiled: bool, settings: Mapping[str, Any]) -> None:
        self.address, self.http = free_address(), free_address()
        self.data = stage.folder / "data"
        self.audit = stage.folder / "audit.jsonl"
        said = {name.replace("_", "-"): value for name, value in settings.items()}
        self._settings = {
            "provider": [f"{name}={address}" for name, address in clouds.items()],
            "data-dir": str(self.data),
            "audit-log": str(self.audit),
            "listen": self.address,
            "metrics-addr": self.http,
            **QUICK,
            **said,
        }
        self.config = stage.folder / "shard.yaml"
        self.config.write_text(yaml.safe_dump(self._settings))
        argv = [*BIGFLEET, "shard", "--log-format", "json", "--config", str(self.config)]
        self.program = stage.program("shard", argv, compiled=compiled)

    async def start(self) -> None:
        self.program.start()
        await until(lambda: asyncio.to_thread(self._ready), seconds=READY_SECONDS, what="the shard is ready")

    def _ready(self) -> bool:
        assert self.program.alive, self.program.tail()
        return self.page("/readyz")[0] == 200

    def page(self, path: str) -> tuple[int, str]:
        return page_of(self.http, path)

    def metric(self, name: str) -> float | None:
        """The sum of all series of this name; None where there is none."""
        lines = [line for line in self.page("/metrics")[1].splitlines() if line.startswith(f"bigfleet_shard_{name}")]
        values = [float(line.rpartition(" ")[2]) for line in lines]
        return sum(values) if values else None


@asynccontextmanager
async def running(stage: Stage, *clouds: Cloud, **settings: Any) -> AsyncIterator[Shard]:
    """A shard over these clouds, ready."""
    shard = stage.shard({f"p{number}": each.address for number, each in enumerate(clouds, 1)}, **settings)
    await shard.start()
    try:
        yield shard
    finally:
        if shard.program.alive:
            shard.program.kill()


async def came(ask: Callable[[], object], seconds: float) -> bool:
    """Whether something happened in time."""
    try:
        await until(ask, seconds=seconds)
    except (TimeoutError, AssertionError):
        return False
    return True


def limit_files(pid: int, count: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (count, count))


def limit_memory(pid: int, size: int) -> None:
    """So that what eats all memory is ended and not this machine."""
    resource.prlimit(pid, resource.RLIMIT_AS, (size, size))


def _text(raw: str | bytes | None) -> str:
    return raw.decode(errors="replace") if isinstance(raw, bytes) else raw or ""
