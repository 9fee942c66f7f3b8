"""provider-simnode keeps the provider's contract, with Nodes of a real API server for its hosts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bigfleet.provider.conformance.report import CERTIFIED
from tools.kube.certify import PROFILES, certify
from tools.kube.cluster import KubeCluster


@pytest.mark.skipif(os.environ.get("BIGFLEET_E2E") != "1", reason="takes a minute: make e2e")
def test_provider_simnode_is_certified(control_plane_programs: None, tmp_path: Path) -> None:
    with KubeCluster(tmp_path, scheduler=False) as cluster:
        found = certify(cluster, PROFILES)
    assert (found["verdict"], found["failed"]) == (CERTIFIED, [])
