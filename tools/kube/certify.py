"""Certify provider-simnode against a real API server and kwok.

python -m tools.kube.certify --json docs/evidence/conformance-simnode.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bigfleet.provider.conformance.config import load_config
from bigfleet.provider.conformance.report import CERTIFIED, report
from bigfleet.provider.conformance.runner import run
from tools.conformance_self import FAULTS, PYTHON, ROOT, Timer
from tools.kube.cluster import KubeCluster

PROFILES = ("core", "cloud", "spot", "fault", "durable")
SIMNODE = ROOT / "examples" / "provider-simnode" / "simnode_provider.py"


def certify(cluster: KubeCluster, profiles: tuple[str, ...] = PROFILES) -> dict[str, Any]:
    """Every lane on processes of its own; hosts join this cluster, whatever cluster the suite names."""
    start = (
        f"{PYTHON} {shlex.quote(str(SIMNODE))} --addr {{addr}} --state {{state}} --seed-count {{slots}} "
        f"--kubeconfig {shlex.quote(str(cluster.kubeconfig()))} --metrics-addr '' --enable-faults "
        "--transition-timeout 5s --log-level error"
    )
    faults = {**FAULTS, "timeout": "5s", "host_loss": {"cluster": "fault-host-loss"}}
    config = load_config(None, {"provider": "simnode", "start": start, "faults": faults, "profiles": list(profiles)})
    timer, began = Timer(), time.monotonic()
    results = asyncio.run(run(config, timer))
    timer.stop()
    full = report(config, results, time.monotonic() - began)
    return {
        "verdict": full["verdict"],
        "profiles": full["profiles"],
        "required_behaviours": full["summary"]["required"],
        "passed": full["summary"]["passed"],
        "failed": [each["id"] for each in full["behaviors"] if each["status"] == "failed"],
        "seconds_by_lane": timer.lanes,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, KubeCluster(Path(folder), scheduler=False) as cluster:
        found = {"command": "python -m tools.kube.certify", **certify(cluster)}
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))
    return 0 if found["verdict"] == CERTIFIED else 1


if __name__ == "__main__":
    sys.exit(main())
