"""Our own programs as child processes: started, watched through their logs, killed, hung and measured by their pid.

For tests, chaos and benchmarks, which must not share an interpreter with what they look at. A `LocalFleet` is a
provider and a shard on fixed loopback ports, so that either may die and come back where the others expect it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from bigfleet.provider.fake.control import send_command
from tools.waiting import wait_until

BIGFLEET = (sys.executable, "-c", "from bigfleet.cli.bigfleet import main; main()")
# Interpreted kernels decide the same about a small fleet and start at once.
INTERPRETED = {"NUMBA_DISABLE_JIT": "1"}
# In front of a program that is to be interrupted: a shell starts what runs in its background with SIGINT ignored, and
# children inherit that. The product leaves it so (who put a command into the background does not want the next Ctrl-C
# to end it; servers, which are stopped by signal, listen all the same), so whoever sends a SIGINT asks for it here.
# A launcher, because code between fork and exec (`preexec_fn`) is unsafe beside the threads gRPC starts.
INTERRUPTIBLE = (
    *(sys.executable, "-I", "-S", "-c"),
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])",
)
START_SECONDS = 300.0


class Program:
    """One child process and the log it writes, over any number of lives."""

    def __init__(
        self, name: str, argv: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.argv = list(argv)
        self.log = folder / f"{name}.log"
        self.lives = 0
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._begin = 0

    def start(self) -> None:
        assert not self.alive, f"{self.name} is running already"
        self._begin = self.log.stat().st_size if self.log.exists() else 0
        self.lives += 1
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(self.argv, stdout=out, stderr=out, env=self._environment)

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    def lines(self, message: str = "", *, every_life: bool = False) -> Iterator[dict[str, Any]]:
        """What this life, or every one, has logged: everything or one message."""
        with self.log.open("rb") as log:
            log.seek(0 if every_life else self._begin)
            for line in log:
                if line.startswith(b"{") and line.endswith(b"}\n"):
                    entry = json.loads(line)
                    if not message or message in entry.get("msg", ""):
                        yield entry

    def told(self, message: str, seconds: float = START_SECONDS) -> dict[str, Any]:
        """Wait for a message of this life."""

        def found() -> dict[str, Any] | None:
            # Alive first: what it said last must not be missed.
            alive = self.alive
            for entry in self.lines(message):
                return entry
            assert alive, f"{self.name} ended with {self.wait()} before {message!r}: {self.tail()}"
            return None

        entry = wait_until(found, seconds=seconds, what=f"{self.name} says {message!r}", evidence=self.tail)
        assert entry is not None
        return entry

    def tail(self, size: int = 2000) -> str:
        return self.log.read_bytes()[-size:].decode(errors="replace")

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if self.alive:
            os.kill(self.pid, signal.SIGKILL)
        self.wait()

    def stop(self, seconds: float = 30.0) -> int:
        """SIGTERM; killed when that takes longer."""
        if self.alive:
            os.kill(self.pid, signal.SIGTERM)
        try:
            return self.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def wait(self, seconds: float | None = None) -> int:
        assert self._process is not None
        return self._process.wait(seconds)

    def hang(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def files(self) -> int:
        """Open file descriptors."""
        return sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())

    def resident(self) -> int:
        """Resident memory in bytes."""
        return resident(self.pid)

    def peak(self) -> int:
        """Highest resident memory so far, in bytes."""
        return _status(self.pid, "VmHWM")

    def processor_seconds(self) -> float:
        return processor_seconds(self.pid)


@dataclass
class LocalFleet:
    """A fake provider and a shard as two processes."""

    folder: Path
    catalogue: Mapping[str, Any]
    settings: Mapping[str, Any]
    durations: str = "instant"
    keep_state: bool = True
    environment: Mapping[str, str] = field(default_factory=lambda: INTERPRETED)
    more_providers: Mapping[str, str] = field(default_factory=dict)
    provider_flags: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.provider_address, self.control, self.address, self.http = (free_address() for _ in range(4))
        (self.folder / "catalogue.yaml").write_text(yaml.safe_dump(dict(self.catalogue)))
        self.provider = Program(
            "provider",
            [
                *(*BIGFLEET, "fake-provider", "--log-format", "json", "--durations", self.durations),
                *("--listen", self.provider_address, "--control", self.control),
                *("--catalogue", str(self.folder / "catalogue.yaml")),
                *(("--state", str(self.state_file)) if self.keep_state else ()),
                *self.provider_flags,
            ],
            self.folder,
            self.environment,
        )
        self.reach_provider_at(self.provider_address)
        self.shard = Program(
            "shard",
            [*BIGFLEET, "shard", "--log-format", "json", "--config", str(self.folder / "shard.yaml")],
            self.folder,
            self.environment,
        )

    def reach_provider_at(self, address: str) -> None:
        """Write the shard's settings, with this address for the fake provider."""
        providers = {"p1": address, **self.more_providers}
        settings = {
            "provider": [f"{name}={each}" for name, each in providers.items()],
            "data-dir": str(self.folder / "data"),
            "audit-log": str(self.folder / "audit.jsonl"),
            "listen": self.address,
            "metrics-addr": self.http,
            **self.settings,
        }
        (self.folder / "shard.yaml").write_text(yaml.safe_dump(settings))

    @property
    def state_file(self) -> Path:
        return self.folder / "provider.db"

    def start(self) -> None:
        """Both, and wait until the shard is ready."""
        self.provider.start()
        self.shard.start()
        self.provider.told("control socket open")
        self.wait_ready()

    def stop(self) -> None:
        for program in (self.shard, self.provider):
            if program.alive:
                program.kill()

    def wait_ready(self, seconds: float = START_SECONDS) -> None:
        def ready() -> bool:
            assert self.shard.alive, f"the shard ended with {self.shard.wait()}: {self.shard.tail()}"
            return self.page("/readyz")[0] == 200

        wait_until(ready, seconds=seconds, what="the shard is ready", evidence=lambda: self.page("/readyz"))

    def page(self, path: str) -> tuple[int, str]:
        """An HTTP page of the shard; status 0 when nobody answers."""
        return page_of(self.http, path)

    def metrics(self) -> dict[tuple[str, ...], float]:
        """Every series as (name, label values in order of label names)."""
        found = {}
        for family in text_string_to_metric_families(self.page("/metrics")[1]):
            for sample in family.samples:
                labels = (value for _, value in sorted(sample.labels.items()))
                found[(sample.name.removeprefix("bigfleet_shard_"), *labels)] = sample.value
        return found

    def metric(self, *key: str) -> float:
        return self.metrics().get(key, 0.0)

    def audit(self) -> list[dict[str, Any]]:
        path = self.folder / "audit.jsonl"
        return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []

    def inject(self, do: str, **fields: Any) -> dict[str, Any]:
        """A command to the pretend world; it must succeed."""
        answer = asyncio.run(send_command(self.control, {"do": do, **fields}))
        assert answer["ok"], answer
        return answer


def page_of(address: str, path: str) -> tuple[int, str]:
    """An HTTP page; status 0 when nobody answers."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def free_address() -> str:
    """A loopback address nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def resident(pid: int) -> int:
    """Resident memory of a process in bytes."""
    return _status(pid, "VmRSS")


def processor_seconds(pid: int) -> float:
    """What a process has computed so far: on a busy machine the honest half of a wall time."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0
