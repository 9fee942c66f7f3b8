"""A real control plane for the tests of this folder, where its programs were built.

`python -m tools.kube build` builds them once (a quarter of an hour); with BIGFLEET_KUBE_BUILD=1 the tests do it.
Where they are missing the tests are skipped and one line says so.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tools.kube.build import build, missing
from tools.kube.cluster import KubeCluster

_LACKING: list[str] = []


@pytest.fixture(scope="session")
def control_plane_programs() -> None:
    """The programs are there, or the test is skipped."""
    if missing() and os.environ.get("BIGFLEET_KUBE_BUILD") == "1" and shutil.which("go"):
        build()
    if missing():
        how = "python -m tools.kube build" if shutil.which("go") else "a Go toolchain, then python -m tools.kube build"
        reason = f"the tests on a real control plane were skipped: they need {how}"
        if not _LACKING:
            _LACKING.append(reason)
        pytest.skip(reason)


@pytest.fixture
def cluster(control_plane_programs: None, tmp_path: Path) -> Iterator[KubeCluster]:
    """One control plane with our kinds and rights installed."""
    with KubeCluster(tmp_path / "kube") as made:
        made.install()
        yield made


@pytest.fixture
def clusters(control_plane_programs: None, tmp_path: Path) -> Iterator[Callable[[str], KubeCluster]]:
    """As many as a test asks for."""
    made: list[KubeCluster] = []

    def start(name: str) -> KubeCluster:
        made.append(KubeCluster(tmp_path / name))
        made[-1].start().install()
        return made[-1]

    yield start
    for each in made:
        each.stop()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in _LACKING:
        terminalreporter.write_line(line)
