"""A real control plane for the tests of this folder, where its programs were built.

`python -m tools.kube build` builds them once (a quarter of an hour); `make test` does so with BIGFLEET_KUBE_BUILD=1,
which CI sets. Where they are missing the tests are skipped, and `make test` says so in one line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tools.kube.build import skipped
from tools.kube.cluster import KubeCluster


@pytest.fixture(scope="session")
def control_plane_programs() -> None:
    """The programs are there, or the test is skipped."""
    if why := skipped():
        pytest.skip(why)


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
