"""Whole runs over real sockets: certificates, exit codes, files, small pools, bare metal, restarts, TLS identities."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from bigfleet.provider.conformance.config import Config, load_config
from bigfleet.provider.conformance.process import Launcher
from bigfleet.provider.conformance.registry import Behaviour
from bigfleet.provider.conformance.report import CERTIFIED, FAILED, INCOMPLETE, verdict
from bigfleet.provider.conformance.runner import run
from bigfleet.provider.conformance.states import State
from bigfleet.provider.conformance.target import Target
from bigfleet.provider.conformance.trial import Capabilities, Trial
from bigfleet.provider.conformance.verdicts import Result, SkipKind, Status
from tests.strategies.background import interrupts_ignored
from tools.processes import INTERRUPTIBLE

HONEST = Path(__file__).parents[1] / "liars" / "honest.py"
ROOT = Path(__file__).parents[2]


class Seen:
    """Remembers what a watcher is told."""

    def __init__(self) -> None:
        self.lanes: list[str] = []
        self.finished: list[str] = []

    def lane_started(self, lane: str, count: int) -> None:
        self.lanes.append(lane)

    def behaviour_started(self, behaviour: Behaviour) -> None: ...

    def behaviour_finished(self, result: Result) -> None:
        self.finished.append(result.behaviour.id)


def settings(extra: str = "", **more: object) -> Config:
    start = f"{sys.executable} {HONEST} --listen {{addr}} --state {{state}} --timeout-seconds 0.8 {extra}"
    return load_config(None, {"start": start, "provider": "honest", **more})


def failures(results: list[Result]) -> str:
    return "\n".join(r.failure_text() for r in results if r.status is Status.FAILED)


async def test_four_slots_suffice_for_core_cloud_and_spot_and_are_given_back() -> None:
    config = settings("--slots 4", profiles=["core", "cloud", "spot"])
    launcher = Launcher(config, config.start, 4, 20.0)
    try:
        target = Target(await launcher.boot(), config.tls)
        watcher = Seen()
        results = await run(msgspec.structs.replace(config, target=target.address, start=""), watcher)
        assert verdict(results, config.profiles) == CERTIFIED, failures(results)
        assert len(watcher.finished) == len(set(watcher.finished)) > 100
        machines = (await Trial(config, target, Capabilities()).listing()).machines
        assert {m.state for m in machines} == {State.SPECULATIVE}
        await target.close()
    finally:
        await launcher.close()


async def test_bare_metal_with_four_slots_gets_a_fresh_provider_when_slots_run_out() -> None:
    only = frozenset({"B105", "B107", "B202", "B205", "B206", "B214", "B218", "B309", "B401", "B407", "B1203"})
    results = await run(settings("--slots 4 --no-delete", profiles=["core", "bare-metal"]), Seen(), only)
    status = {r.behaviour.id: r.status for r in results if r.behaviour.id in only}
    assert set(status.values()) == {Status.PASSED}, failures(results)


async def test_a_pool_that_runs_dry_leaves_the_run_incomplete() -> None:
    config = settings("--slots 2", profiles=["core"])
    results = await run(config, Seen(), frozenset({"B302", "B305", "B303"}))
    starved = [r.behaviour.id for r in results if r.skip is SkipKind.INVENTORY]
    assert starved == ["B302"]
    assert verdict(results, config.profiles) == INCOMPLETE


async def test_an_empty_inventory_is_not_certified() -> None:
    config = settings("--slots 0 --bait 0", profiles=["core"])
    results = await run(config, Seen(), frozenset({"B902", "B801", "B105"}))
    assert {r.behaviour.id: r.status for r in results if r.behaviour.id == "B902"} == {"B902": Status.FAILED}
    assert verdict(results, config.profiles) == FAILED


async def test_fault_and_durable_lanes_need_to_be_configured() -> None:
    config = settings(profiles=["fault", "durable"])
    target_only = msgspec.structs.replace(config, target="127.0.0.1:1", start="")
    results = await run(target_only, Seen(), frozenset({"B1001", "B1006"}))
    assert {r.skip for r in results if r.behaviour.id in ("B1001", "B1006")} == {SkipKind.NOT_CONFIGURED}
    results = await run(config, Seen(), frozenset({"B701", "B708"}))
    assert {r.skip for r in results if r.behaviour.id in ("B701", "B708")} == {SkipKind.NOT_CONFIGURED}
    assert verdict(results, config.profiles) == INCOMPLETE


async def test_a_provider_that_does_not_come_back_fails_the_durable_lane(tmp_path: Path) -> None:
    once = tmp_path / "once.py"
    once.write_text(
        "import os, sys\n"
        "if os.path.exists(sys.argv[1]): sys.exit('state is corrupt')\n"
        f"os.execv({sys.executable!r}, [{sys.executable!r}, {str(HONEST)!r}] + sys.argv[2:])\n"
    )
    start = f"{sys.executable} {once} {{state}} --listen {{addr}} --state {{state}}"
    config = load_config(None, {"start": start, "profiles": ["durable"]})
    results = await run(config, Seen(), frozenset({"B1001"}))
    (result,) = [r for r in results if r.behaviour.id == "B1001"]
    assert result.status is Status.FAILED
    assert "did not come back" in result.problem


async def test_slow_hosts_pass_with_longer_limits_and_fail_without() -> None:
    slow = "--slots 4 --transition-seconds 0.7"
    only = frozenset({"B107"})
    short = {"create": "300ms", "configure": "300ms", "drain": "300ms", "delete": "2s"}
    impatient = await run(settings(slow, timing=short), Seen(), only)
    assert [r.status for r in impatient if r.behaviour.id == "B107"] == [Status.FAILED]
    patient = await run(settings(slow, timing={**short, "multiplier": 10}), Seen(), only)
    assert [r.status for r in patient if r.behaviour.id == "B107"] == [Status.PASSED]


async def test_over_mtls_every_shard_has_its_own_certificate(tmp_path: Path) -> None:
    ctl = [sys.executable, "-c", "from bigfleet.cli.bigfleetctl import main; main()", "certs"]
    for words in (["init"], ["issue", "provider", "skeleton", "--ip", "127.0.0.1"]):
        subprocess.run([*ctl, *words], cwd=tmp_path, check=True, capture_output=True)
    certs = tmp_path / "certs"
    start = (
        f"{sys.executable} {ROOT / 'examples' / 'skeleton_provider.py'} --addr {{addr}} --state {{state}} "
        f"--seed-count 8 --metrics-addr '' --log-level error --tls-cert {certs / 'provider-skeleton.crt'} "
        f"--tls-key {certs / 'provider-skeleton.key'} --tls-ca {certs / 'ca.crt'}"
    )
    tls = {"ca": str(certs / "ca.crt"), "issuer_cert": str(certs / "ca.crt"), "issuer_key": str(certs / "ca.key")}
    config = load_config(None, {"start": start, "tls": tls, "profiles": ["core"]})
    only = frozenset({"B302", "B1302", "B303"})
    results = await run(config, Seen(), only)
    assert {r.status for r in results if r.behaviour.id in only} == {Status.PASSED}, failures(results)


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    program = "from bigfleet.cli.conformance import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_certifies_and_writes_its_files(tmp_path: Path) -> None:
    config = tmp_path / "conformance.yaml"
    config.write_text(f"start: {sys.executable} {HONEST} --listen {{addr}} --state {{state}} --slots {{slots}}\n")
    done = command("run", "--config", str(config), "--profile", "core,cloud,spot", "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "VERDICT: CERTIFIED" in done.stdout
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert report["verdict"] == "CERTIFIED"
    assert report["baseline"]["passed"] == 25
    assert json.loads((tmp_path / "out/badge.json").read_text())["color"] == "brightgreen"
    ElementTree.parse(tmp_path / "out/junit.xml")


def test_the_command_shows_what_was_sent_what_came_back_and_the_contract(tmp_path: Path) -> None:
    config = tmp_path / "conformance.yaml"
    config.write_text(f"start: {sys.executable} {HONEST} --listen {{addr}} --liar fence-per-shard\n")
    done = command("run", "--config", str(config), "--only", "B302")
    assert done.returncode == 1
    assert "FAIL B302" in done.stdout
    for word in ("problem ", "sent  Create", "back  FAILED_PRECONDITION", "contract "):
        assert word in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run"], "nothing to test"),
        (["run", "--target", "127.0.0.1:1", "--profile", "cumulus"], "cumulus"),
        (["run", "--target", "127.0.0.1:1", "--only", "B999"], "B999"),
        (["run", "--target", "127.0.0.1:1"], "127.0.0.1:1"),
        (["run", "--target", "nowhere"], "HOST:PORT"),
        (["explain", "B304"], "B304"),
    ],
)
def test_usage_and_set_up_errors_end_with_code_2(arguments: list[str], says: str) -> None:
    done = command(*arguments)
    assert done.returncode == 2
    assert says in done.stderr


def test_list_and_explain() -> None:
    listed = json.loads(command("list", "-o", "json").stdout)
    assert len(listed) == 25 + 93 + 23
    assert {"id", "title", "area", "profiles"} <= set(listed[0])
    explained = command("explain", "B305").stdout
    assert "Reads never fence" in explained
    assert "Fencing" in explained


def test_the_suite_shares_no_code_with_what_it_judges() -> None:
    program = "import sys, bigfleet.cli.conformance_commands; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    forbidden = ("bigfleet.provider.kit", "bigfleet.provider.fake", "bigfleet.engine", "bigfleet.model", "numpy")
    assert [name for name in loaded if name.startswith(forbidden)] == []


async def test_an_interrupted_run_gives_its_machines_back() -> None:
    config = settings("--slots 8 --transition-seconds 0.05")
    launcher = Launcher(config, config.start, 8, 20.0)
    try:
        target = Target(await launcher.boot(), config.tls)
        program = "from bigfleet.cli.conformance import main; main()"
        with interrupts_ignored():
            running = await asyncio.create_subprocess_exec(
                *(*INTERRUPTIBLE, sys.executable, "-u", "-c", program, "run", "--target", target.address),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        assert running.stdout is not None
        while b"pass B1" not in await running.stdout.readline():
            pass
        running.send_signal(signal.SIGINT)
        await running.communicate()
        assert running.returncode not in (0, None)
        machines = (await Trial(config, target, Capabilities()).listing()).machines
        assert {m.state for m in machines} == {State.SPECULATIVE}
        await target.close()
    finally:
        await launcher.close()
