"""The demonstration end to end: the script as people run it, the screen and its keys, and how both end."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from bigfleet.cli.output import Output
from bigfleet.cli.serve import demo as command
from bigfleet.demo import scene as scene_module
from bigfleet.demo import script
from bigfleet.demo.app import DemoApp
from bigfleet.demo.scene import QUICK_SETTINGS, Scene, demo_catalogue
from bigfleet.demo.script import STEPS
from bigfleet.provider.fake.catalogue import Catalogue
from tests.strategies.background import interrupts_ignored
from tools.processes import BIGFLEET, INTERRUPTIBLE
from tools.waiting import PATIENCE_SECONDS, until

START_SECONDS = 300.0  # a cold kernel cache on a busy machine


def tiny_catalogue(*, quick: bool = True) -> Catalogue:
    """Far too little for anybody."""
    whole = demo_catalogue(quick=quick)
    return Catalogue(whole.provider, whole.offerings[1:2], latencies=whole.latencies)


@asynccontextmanager
async def resting(directory: Path) -> AsyncIterator[Scene]:
    """A scene on an ordinary day, all demand met."""
    async with Scene.opened(directory, demo_catalogue(quick=True), QUICK_SETTINGS) as scene:
        await seen(scene, lambda: scene.met, START_SECONDS)
        yield scene


async def seen(scene: Scene, true: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    async def look() -> bool:
        await scene.look()
        return true()

    await until(look, seconds=seconds)


def environment(directory: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(directory), "COLUMNS": "120", "TERM": "xterm-256color"}


def test_the_script_meets_all_demand_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = subprocess.run(
        [*BIGFLEET, "demo", "--once", "-o", "json", "--picture", str(tmp_path / "kept" / "demo.svg")],
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
        env=environment(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    steps = json.loads(done.stdout)
    assert [step["step"] for step in steps] == [step.title for step in STEPS]
    assert all(step["met"] and not step["short"] for step in steps)
    assert steps[0]["dollars_per_hour"] == 0 < steps[1]["dollars_per_hour"]
    assert steps[-1]["nodes"] == 0 == steps[-1]["dollars_per_hour"]
    assert "the engine runs as plain Python" in done.stderr
    assert "from research for the critical job of payments" in done.stderr
    assert "<svg" in (tmp_path / "kept" / "demo.svg").read_text()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("bigfleet-demo-")] == []


async def test_demand_that_is_not_met_ends_the_script_with_a_code_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scene_module, "demo_catalogue", tiny_catalogue)
    monkeypatch.setattr(script, "STEPS", STEPS[:1])
    monkeypatch.setattr(script, "PATIENCE_SECONDS", 3.0)
    assert await command._once(tmp_path, None, Output.TABLE) == 1
    told = capsys.readouterr().out
    assert "NOT MET" in told and "short: web (web) is short of" in told and "not met in: an ordinary day" in told


async def test_the_keys_do_what_they_say(tmp_path: Path) -> None:
    async with resting(tmp_path) as scene:
        app = DemoApp(scene)
        async with app.run_test(size=(120, 50)) as pilot:
            calm = len(scene.sight.serving())
            await pilot.press("3")
            await seen(scene, lambda: scene.met and len(scene.sight.serving("research")) > 40)
            await pilot.press("z")
            await seen(scene, lambda: bool(scene.down) and scene.met)
            await seen(scene, lambda: not scene.sight.serving(zone=next(iter(scene.down))))
            await pilot.press("c")
            await seen(scene, lambda: scene.met and len(scene.sight.serving("payments")) > 20)
            await pilot.press("r")
            await seen(scene, lambda: not scene.down and len(scene.sight.serving()) <= calm + 5)
            await pilot.press("d")
            await seen(scene, lambda: not scene.sight.serving())
            await pilot.press("q")
        assert app.broken is None
        lines = [line.text for line in scene.story.lines if line.who == "you"]
        assert any("research bursts" in line for line in lines) and any("critical job" in line for line in lines)


async def test_every_decision_is_told_once(tmp_path: Path) -> None:
    async with resting(tmp_path) as scene:
        await seen(scene, lambda: scene.sight.cycle > 5)
        told = [re.match(r"gave \w+ (\d+) ", line.text) for line in scene.story.lines]
        assert sum(int(match[1]) for match in told if match) == len(scene.sight.serving())


async def test_a_burst_beyond_every_machine_is_a_shortfall_with_its_reason(tmp_path: Path) -> None:
    async with resting(tmp_path) as scene:
        for _ in range(6):
            await scene.burst("research")
        await seen(scene, lambda: bool(scene.sight.unmet) and not scene.sight.arriving)
        assert {need.cluster for need in scene.sight.unmet} == {"research"}
        assert not scene.met


async def test_a_part_that_breaks_ends_the_screen_and_the_scene_with_what_broke(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="disk is full"):
        async with resting(tmp_path) as scene:
            app = DemoApp(scene)
            async with app.run_test():
                scene.shard.conductor.fail(OSError("disk is full"))
                await until(lambda: app.broken)
            assert str(app.broken) == "disk is full"


@contextmanager
def on_a_terminal(directory: Path) -> Iterator[tuple[int, int]]:
    """`bigfleet demo` on a terminal of its own: its process id, and the terminal's other end."""
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe(BIGFLEET[0], [*BIGFLEET, "demo"], environment(directory))
    try:
        yield child, terminal
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    finally:
        os.close(terminal)


def read_until(terminal: int, words: bytes, seconds: float) -> bytes:
    """Everything shown until these words are."""
    shown, deadline = b"", time.monotonic() + seconds
    while words not in shown and time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                shown += os.read(terminal, 65536)
            except OSError:
                break  # the other end is closed
    return shown


@pytest.mark.parametrize("farewell", ["q", "SIGTERM"])
def test_the_live_screen_ends_when_told_and_gives_the_terminal_back(tmp_path: Path, farewell: str) -> None:
    with on_a_terminal(tmp_path) as (child, terminal):
        shown = read_until(terminal, b"all demand met", START_SECONDS)
        assert b"all demand met" in shown and b"the engine runs as plain Python" in shown.replace(b"\r\n", b" ")
        if farewell == "q":
            os.write(terminal, b"q")
        else:
            os.kill(child, signal.SIGTERM)
        rest = read_until(terminal, b"\x1b[?1049l", 30)
        assert b"\x1b[?1049l" in rest, "the alternate screen was not left"
        read_until(terminal, b"never shown", 30)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == 0
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("bigfleet-demo-")] == []


def test_the_live_screen_without_a_terminal_says_what_to_type(tmp_path: Path) -> None:
    done = subprocess.run(
        [*BIGFLEET, "demo"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
        env=environment(tmp_path),
    )
    assert done.returncode == 1 and "bigfleet demo --once" in done.stderr and "Traceback" not in done.stderr


def test_an_interrupted_script_cleans_up(tmp_path: Path) -> None:
    with interrupts_ignored():
        running = subprocess.Popen(
            [*INTERRUPTIBLE, *BIGFLEET, "demo", "--once"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(tmp_path),
        )
    assert running.stdout is not None
    assert b"an ordinary day" in running.stdout.readline()
    running.send_signal(signal.SIGINT)
    assert running.wait(30) == 130
    running.stdout.close()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("bigfleet-demo-")] == []
