"""The suite catches liars: each broken provider, run as a process, is FAILED by the behaviour that names its fault."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from bigfleet.provider.conformance.config import Config, Faults, Timing, load_config
from bigfleet.provider.conformance.registry import Behaviour, find
from bigfleet.provider.conformance.report import FAILED, verdict
from bigfleet.provider.conformance.runner import run
from bigfleet.provider.conformance.verdicts import Result, Status

FOLDER = Path(__file__).parents[1] / "liars"
SOURCE = (FOLDER / "liars.py").read_text(encoding="utf-8")
PROFILES = ("core", "cloud", "spot", "fault", "durable")


def _liars() -> list[tuple[str, str]]:
    """Name and expected behaviour of every liar, read without importing what runs in another process."""
    found = re.findall(r'@caught_by\("(B\d+)"\)\nclass (\w+)', SOURCE)
    return [("".join(f"-{c.lower()}" if c.isupper() else c for c in kind).lstrip("-"), b) for b, kind in found]


LIARS = _liars()


class Silent:
    """Nobody watches."""

    def lane_started(self, lane: str, count: int) -> None: ...
    def behaviour_started(self, behaviour: Behaviour) -> None: ...
    def behaviour_finished(self, result: Result) -> None: ...


def provider(liar: str = "", slots: int = 12) -> Config:
    command = f"{sys.executable} {FOLDER / 'honest.py'} --listen {{addr}} --state {{state}} --slots {slots}"
    settings = {
        "start": command + (f" --liar {liar}" if liar else "") + " --timeout-seconds 1.2",
        "profiles": list(PROFILES),
        "faults": "reference",
        "timing": {"create": 3, "configure": 3, "drain": 3, "delete": 3},
    }
    config = load_config(None, settings)
    assert isinstance(config.timing, Timing)
    return config


def with_timeout(config: Config, timeout: float) -> Config:
    """The reference selectors with the shorter timeout the test providers run with."""
    import msgspec

    faults = config.fault_map()
    assert isinstance(faults, Faults)
    return msgspec.structs.replace(config, faults=msgspec.structs.replace(faults, timeout=timeout))


async def judge(liar: str, *ids: str) -> list[Result]:
    return await run(with_timeout(provider(liar), 1.2), Silent(), frozenset(ids))


def test_there_are_enough_liars_and_each_names_a_known_behaviour() -> None:
    assert len(LIARS) >= 15
    assert all(find(behaviour) is not None for _, behaviour in LIARS)


@pytest.mark.parametrize(("liar", "behaviour"), LIARS, ids=[name for name, _ in LIARS])
async def test_liar_is_failed_by_the_behaviour_that_names_its_fault(liar: str, behaviour: str) -> None:
    results = await judge(liar, behaviour)
    (result,) = [r for r in results if r.behaviour.id == behaviour]
    assert result.status is Status.FAILED, f"{liar} was not caught: {result.status} {result.note}"
    assert verdict(results, PROFILES) == FAILED
    assert result.problem and result.contract and result.calls
    assert "join-secret" not in result.failure_text()
    assert "bootstrap secret" not in result.failure_text()


async def test_the_honest_provider_passes_every_behaviour_that_catches_a_liar() -> None:
    wanted = frozenset(behaviour for _, behaviour in LIARS)
    results = await judge("", *wanted)
    bad = [r.failure_text() for r in results if r.behaviour.id in wanted and r.status is not Status.PASSED]
    assert not bad, "\n".join(bad)


async def test_a_restart_that_did_not_end_the_provider_certifies_nothing(tmp_path: Path) -> None:
    """The start command hands over to a process of its own session, which the kill does not reach."""
    script = tmp_path / "start.sh"
    script.write_text('#!/bin/sh\nsetsid "$@" & echo $! >> "$(dirname "$0")/pids"; sleep 60\n')
    script.chmod(0o755)
    command = f"{script} {sys.executable} {FOLDER / 'honest.py'} --listen {{addr}} --slots 12"
    config = load_config(None, {"start": command, "profiles": ["durable"]})
    try:
        results = await run(config, Silent(), frozenset({"B1001", "B1004"}))
    finally:
        for pid in (tmp_path / "pids").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    (result,) = [r for r in results if r.behaviour.id == "B1004"]
    assert result.status is Status.FAILED and "still answers" in result.problem
    assert verdict(results, ("durable",)) == FAILED
