"""Whole processes: orderly stops, stubborn parts, exit codes, and what importing the transport costs."""

import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest

from tests.strategies.background import interrupts_ignored

PREAMBLE = """
import asyncio, sys, threading
from bigfleet.transport import process
process._CANCEL_SECONDS = 0.3
"""
ORDERLY = """
async def serve(stop):
    print("up", flush=True)
    await stop.wait()
    print("down", flush=True)
"""
STUBBORN = """
async def serve(stop):
    print("up", flush=True)
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
"""
STUCK_THREAD = """
async def serve(stop):
    asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
    print("up", flush=True)
    await stop.wait()
"""
SLOW = """
async def serve(stop):
    print("up", flush=True)
    await stop.wait()
    print("stopping", flush=True)
    await asyncio.Event().wait()
"""
FAILING = """
async def serve(stop):
    raise RuntimeError("no disk")
"""
ENDING = """
async def serve(stop):
    return None
"""


def start(body: str, grace: float = 30) -> subprocess.Popen[str]:
    program = f"{PREAMBLE}{body}\nsys.exit(process.run_until_signal(serve, grace={grace}))"
    return subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def read_line(running: subprocess.Popen[str]) -> str:
    assert running.stdout
    return running.stdout.readline().strip()


@pytest.mark.parametrize("started", [nullcontext, interrupts_ignored])
@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_in_order_however_we_were_started(
    asked: signal.Signals, started: Callable[[], AbstractContextManager[None]]
) -> None:
    with started():
        running = start(ORDERLY)
    assert read_line(running) == "up"
    running.send_signal(asked)
    output, _ = running.communicate(timeout=30)
    assert "signal received, shutting down" in output
    assert "down" in output
    assert running.returncode == 0


@pytest.mark.parametrize("body", [STUBBORN, STUCK_THREAD])
def test_parts_that_ignore_the_stop_cannot_keep_the_process(body: str) -> None:
    running = start(body, grace=0.1)
    assert read_line(running) == "up"
    running.terminate()
    output, _ = running.communicate(timeout=30)
    assert "exiting without them" in output
    assert running.returncode == 1


def test_a_second_signal_hurries() -> None:
    running = start(SLOW, grace=600)
    assert read_line(running) == "up"
    running.terminate()
    while read_line(running) != "stopping":
        pass
    running.terminate()
    running.communicate(timeout=30)
    assert running.returncode == 1


def test_a_failure_is_logged_and_is_the_exit_code() -> None:
    running = start(FAILING)
    output, _ = running.communicate(timeout=30)
    assert "component exited" in output
    assert "no disk" in output
    assert running.returncode == 1


def test_returning_ends_the_process() -> None:
    running = start(ENDING)
    running.communicate(timeout=30)
    assert running.returncode == 0


def test_the_transport_imports_without_arrays_or_kernels() -> None:
    program = (
        "import sys, bigfleet.transport, bigfleet.transport.endpoints, bigfleet.transport.logs, "
        "bigfleet.transport.process, bigfleet.transport.authority, bigfleet.cli.bigfleetctl, bigfleet.cli.bigfleet\n"
        "heavy = {'numpy', 'numba', 'scipy', 'lightkube', 'aetcd'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
