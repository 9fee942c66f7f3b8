"""What the mirror says fits, the real scheduler binds; what it calls stranded, the scheduler leaves."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from bigfleet.operator.core.mirror.filters import NodeFilter
from tools.kube import mirror_check
from tools.kube.cluster import KubeCluster
from tools.kube.mirror_check import compare, start_scheduler_only

CLUSTERS = int(os.environ.get("BIGFLEET_MIRROR_CLUSTERS", "50"))


@pytest.fixture(scope="module")
def scheduler(control_plane_programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeCluster]:
    made = start_scheduler_only(tmp_path_factory.mktemp("kube"))
    yield made
    made.stop()


def test_mirror_and_scheduler_agree_on_random_clusters(scheduler: KubeCluster) -> None:
    asked, bound, found = 0, 0, []
    for seed in range(1000, 1000 + CLUSTERS):
        one = compare(scheduler, seed)
        asked += one["asked"]
        bound += one["outcomes"].get("bound", 0)
        found += one["disagreements"]
    assert not [each for each in found if each["cause"] == "unknown"]
    assert len(found) <= 0.01 * asked, found
    # A question that always has the same answer would prove nothing.
    assert 0.2 * asked < bound < 0.8 * asked


def test_the_comparison_notices_a_mirror_that_overlooks_taints(
    scheduler: KubeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NodeFilter, "_tolerated", lambda *_: True)
    monkeypatch.setattr(mirror_check, "SECOND_THOUGHT_SECONDS", 2.0)
    found = (each for seed in range(2000, 2050) for each in compare(scheduler, seed, pods=4)["disagreements"])
    assert any(each["mirror"] == "fits" for each in found)
