"""The demonstration end to end: the script as people run it, the screen and its keys, and how both end."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import select
import signal
import subprocess
import time
import urllib.request
from collections import Counter
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
from bigfleet.model.machine import MachineState
from bigfleet.provider.fake.catalogue import Catalogue
from tests.strategies.background import interrupts_ignored
from tests.strategies.demo_words import TOO_RISKY_FOR_THE_WEB
from tools.processes import BIGFLEET, INTERRUPTIBLE
from tools.waiting import until

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


async def seen(scene: Scene, true: Callable[[], bool], seconds: float = 120.0) -> None:
    async def look() -> bool:
        await scene.look()
        return true()

    await until(look, seconds=seconds)


def holdings(scene: Scene) -> tuple[list[str], Counter[str]]:
    """Which machines are in use, and how many each cluster has; which is whose depends on who speaks first."""
    used = [machine for machine in scene.sight.machines if machine.cluster]
    return sorted(machine.id for machine in used), Counter(machine.cluster for machine in used)


def fetched(address: str) -> str:
    with urllib.request.urlopen(address, timeout=10) as page:
        return str(page.read().decode())


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
    dollars = {step["step"]: step["dollars_per_hour"] for step in steps}
    assert dollars["an ordinary day"] == dollars["the stores burst"] == 0 < dollars["research bursts"]
    assert steps[-1]["nodes"] == 0 == steps[-1]["dollars_per_hour"]
    assert "the engine runs as plain Python" in done.stderr
    told = done.stderr
    # Exactly what the other shard lacks, two of six pods on a machine, from what is idle and paid for.
    moved = "the coordinator moved 3 reserved m6i.2xlarge in eu-west-1b from shard main to shard edge"
    assert told.count("the coordinator moved") == 1 and moved in told
    # Twenty-eight pods, two on a machine, and nobody's more than that.
    taken = re.findall(r"took (\d+) on-prem metal-8 in .* for payments' settlement \(critical\)", told)
    assert sum(map(int, taken)) == 14
    assert "from research's nightly (batch) for payments' settlement (critical)" in told
    assert "spot is good enough: 7.5% risk × $0 an interruption = $0.00/h, on-demand is $0.27/h dearer" in told
    assert re.search(TOO_RISKY_FOR_THE_WEB, told)
    assert not re.search(r"\d{4,}m vCPU", told)
    there = {"m6i.2xlarge": 36, "c6i.4xlarge": 12}
    assert all(int(count) <= there[kind] for count, _, kind in re.findall(r"released (\d+) (\S+) (\S+)", told))
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
    assert "NOT MET" in told and "short: web's storefront (web) is short of" in told
    assert "no machine of this fleet fits" in told and "not met in: an ordinary day" in told


async def test_the_keys_do_what_they_say(tmp_path: Path) -> None:
    async with resting(tmp_path) as scene:
        app = DemoApp(scene)
        async with app.run_test(size=(120, 50)) as pilot:
            calm = holdings(scene)
            await pilot.press("3")
            await seen(scene, lambda: scene.met and len(scene.sight.serving("research")) > 40)
            await pilot.press("z")
            await seen(scene, lambda: bool(scene.down) and scene.met)
            await seen(scene, lambda: not scene.sight.serving(zone=next(iter(scene.down))))
            await pilot.press("c")
            await seen(scene, lambda: scene.met and len(scene.sight.serving("payments")) > 20)
            said = [line.text for line in scene.lines if line.who == "you"]
            await pilot.press("r")
            await seen(scene, lambda: scene.resetting)
            await pilot.press("3")  # says that it must wait, and does nothing
            await seen(scene, lambda: not scene.resetting and scene.met)
            assert not scene.down and scene.complete and holdings(scene) == calm
            assert scene.sight.dollars == 0
            await pilot.press("d")
            await seen(scene, lambda: not scene.sight.serving())
            await pilot.press("q")
        assert app.broken is None
        assert any("research bursts" in line for line in said) and any("critical job" in line for line in said)
        assert not any("bursts:" in line.text for line in scene.lines), "a reset began with an empty page"


async def test_a_shard_without_enough_gets_what_another_has_idle(tmp_path: Path) -> None:
    """By the providers' records and the shards' own lists, not by the story."""
    async with resting(tmp_path) as scene:
        main, edge = scene.sites.all
        before = set(main.sight.by_id), set(edge.sight.by_id)
        idle = {machine.id for machine in main.sight.machines if machine.state is MachineState.IDLE}
        assert len(before[0]) + len(before[1]) == scene.provider.provider.cloud.catalogue.size
        await scene.burst("stores")
        await seen(scene, lambda: scene.met and len(scene.sight.serving("stores")) > 2)
        came = set(edge.sight.by_id) - before[1]
        assert came and came <= idle and before[0] - set(main.sight.by_id) == came
        assert {machine.id for machine in scene.sight.serving("stores")} == before[1] | came
        assert scene.complete and not scene.moment().gone, "a machine that moved is not gone"
        assert sum("the coordinator moved" in line.text for line in scene.lines) == 1


async def test_every_decision_is_told_once(tmp_path: Path) -> None:
    async with resting(tmp_path) as scene:
        await seen(scene, lambda: scene.sight.cycle > 5)
        told = [re.match(r"gave (\d+) ", line.text) for line in scene.lines]
        assert sum(int(match[1]) for match in told if match) == len(scene.sight.serving())


async def test_screen_and_gauge_show_the_same_dollars(tmp_path: Path) -> None:
    async with resting(tmp_path) as scene:

        async def told() -> tuple[float, float, float]:
            """What the gauge, the screen and the provider's bill say, one after the other."""
            await scene.look()
            page = await asyncio.to_thread(fetched, f"http://{scene.moment().metrics}/metrics")
            gauge = re.search(r"^bigfleet_shard_dollars_per_hour(?:{.*})? (\S+)$", page, re.MULTILINE)
            assert gauge is not None
            kept = scene.provider.process.runtime.core.machines.values()
            billed = sum(each.shape.price_per_hour for each in kept if each.host is not None)
            return float(gauge[1]), scene.sight.dollars, billed

        for deed in (lambda: scene.burst("research"), scene.fail_zone, scene.critical):
            await deed()
            await seen(scene, lambda: scene.met)
            # While machines come and go the three are asked at three moments; sooner or later nothing moves.
            await until(told, lambda each: each[0] > 0 and each[0] == pytest.approx(each[1]) == pytest.approx(each[2]))


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
                scene.sites.all[0].shard.conductor.fail(OSError("disk is full"))
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
