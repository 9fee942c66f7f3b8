"""A person at a terminal, for tests: types what a document says, in a folder and, where possible, a network of its own.

With a network of its own every documented address and default port is free, so nothing in the text is replaced; it has
no way out but loopback. Where the system does not allow one, the machine's own loopback is used.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_SECONDS = 600.0
_POLITE_SECONDS = 5.0
# Brings loopback up and gives it further addresses, then becomes the rest of the command line.
_NETWORK = """
import fcntl, os, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
    def address(name, text):
        fcntl.ioctl(door, 0x8916, struct.pack("16sHH4s8x", name.encode(), socket.AF_INET, 0, socket.inet_aton(text)))
    fcntl.ioctl(door, 0x8914, struct.pack("16sH14x", b"lo", 0x49))
    for number, text in enumerate(filter(None, sys.argv[1].split(","))):
        address(f"lo:{number}", text)
os.execvp(sys.argv[2], sys.argv[2:])
"""


@functools.cache
def own_network() -> tuple[str, ...]:
    """The beginning of a command line that runs in a network of its own; empty where that is not allowed."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return ()
    begin = (unshare, "--map-root-user", "--net", sys.executable, "-c", _NETWORK)
    tried = subprocess.run([*begin, "", "true"], capture_output=True, check=False)
    return begin if tried.returncode == 0 else ()


class Terminal:
    """One bash that remembers folder, variables and background jobs between what is typed. It ends at a failure."""

    def __init__(self, folder: Path, *, addresses: Sequence[str] = (), environment: Mapping[str, str] = {}) -> None:
        """`addresses` are given to this machine, if it has a network of its own."""
        self.folder = folder
        self._notes = folder / ".typed"
        self._notes.mkdir(parents=True)
        self._typed = 0
        reading, self._done = os.pipe()
        network = [*own_network(), ",".join(addresses)] if own_network() else []
        with (self._notes / "bash").open("w") as complaints:
            self._bash = subprocess.Popen(
                [*network, "bash", "-euo", "pipefail"],
                cwd=folder,
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=complaints,
                stderr=complaints,
                pass_fds=[self._done],
                start_new_session=True,
                text=True,
            )
        os.close(self._done)
        self._answers = os.fdopen(reading)

    def type(self, text: str, *, fails: bool = False) -> tuple[int, str]:
        """Run it; exit code and what it printed. After a failure that was not announced there is no next one."""
        script, output = self._saved(text)
        sourced = f". {script} >{output} 2>&1 </dev/null"
        return self._answer(
            f"set +e; ( set -e; {sourced} ); code=$?; set -e" if fails else f"{sourced}; code=0", output
        )

    def leave_running(self, text: str, until: tuple[str, str]) -> tuple[int, str]:
        """Run it as in another terminal, and wait until it answers at an address or has printed a text."""
        # The shell becomes the command, so that ending it ends the command.
        script, output = self._saved(f"exec {text.strip()}\n")
        kind, what = until
        ready = f"curl -sf {what} >/dev/null" if kind == "address" else f"grep -qF -- '{what}' {output}"
        waiting = f"until {ready}; do kill -0 $left; sleep 0.2; done"
        return self._answer(
            f"bash -euo pipefail {script} >{output} 2>&1 </dev/null & left=$!; {waiting}; code=0", output
        )

    def stop(self) -> None:
        """End what was left running last, as ^C in that terminal would."""
        self.type("kill $left; wait $left || true")

    def close(self) -> None:
        """End everything that was started here."""
        for way in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._bash.pid, way)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._bash.wait(_POLITE_SECONDS)
        self._answers.close()

    def _saved(self, text: str) -> tuple[Path, Path]:
        self._typed += 1
        script = self._notes / f"{self._typed}.sh"
        script.write_text(text, encoding="utf-8")
        return script, script.with_suffix(".out")

    def _answer(self, line: str, output: Path) -> tuple[int, str]:
        assert self._bash.stdin is not None
        self._bash.stdin.write(f"{line}; echo $code >&{self._done}\n")
        self._bash.stdin.flush()
        code = self._code()
        said = output.read_text(encoding="utf-8", errors="replace") if output.exists() else ""
        return code, said + ((self._notes / "bash").read_text() if code else "")

    def _code(self) -> int:
        """What the shell answers, or the code it ended with: servers left running keep the pipe open."""
        until = time.monotonic() + _SECONDS
        while time.monotonic() < until:
            if select.select([self._answers], [], [], 0.1)[0]:
                answer = self._answers.readline()
                return int(answer) if answer else self._bash.wait()
            if self._bash.poll() is not None:
                return self._bash.returncode or 1
        return 124
