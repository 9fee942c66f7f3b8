"""A cluster to play with: a real control plane, kwok, a shard, the operator and the pod controller, until Ctrl-C.

python -m tools.kube.demo
"""

from __future__ import annotations

import argparse
import signal
import tempfile
import time
from pathlib import Path

import yaml

from tools.kube.build import BIN, build
from tools.kube.cluster import KubeCluster
from tools.kube.stack import QUICK, Stack, deployment

# Holds of seconds instead of minutes, so that nobody waits for machines to go; the guard against sudden losses stays.
SETTINGS = {**QUICK, "rollup-guard-hold": "10s"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=0.0, help="end by itself after so long; 0 waits for Ctrl-C")
    parser.add_argument("--sums", action="store_true", help="tell the shard sums of resources, not what has no room")
    options = parser.parse_args()
    build()
    flags = ["--rollup-interval", "5s", *(["--sums"] if options.sums else [])]
    # A shell starts what it puts into the background deaf to Ctrl-C; whoever ends the demo by signal means it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory(prefix="bigfleet-kube-demo-") as folder:
            _run(Path(folder), flags, options.seconds)
    except KeyboardInterrupt:
        print("stopped: nothing of it is left", flush=True)


def _run(folder: Path, flags: list[str], seconds: float) -> None:
    print("starting etcd, API server, controller manager, scheduler and kwok ...", flush=True)
    with KubeCluster(folder / "kube") as cluster:
        cluster.install()
        print(f"control plane ready after {cluster.seconds_to_start:.0f} s; starting BigFleet ...", flush=True)
        with Stack(folder / "bigfleet", {"demo": cluster}, settings=SETTINGS, operator_flags=flags) as stack:
            web = folder / "web.yaml"
            web.write_text(yaml.safe_dump(deployment("web", 20, {"cpu": "2", "memory": "4Gi"}), sort_keys=False))
            print(_guide(cluster, stack, web), flush=True)
            time.sleep(seconds or 1e9)
        print("stopping", flush=True)


def _guide(cluster: KubeCluster, stack: Stack, web: Path) -> str:
    return f"""
A cluster without a single node, and BigFleet in it. In another terminal:

    export KUBECONFIG={cluster.kubeconfig()} PATH={BIN}:$PATH

    kubectl apply -f {web}    # 20 pods of 2 cpu
    kubectl get pods,nodes                     # in about ten seconds: nodes, and the pods run on them
    kubectl get capacityrequests,upcomingnodes,availablecapacities
    kubectl scale deployment web --replicas=0  # in about half a minute every node is given back

What the shard decided: {stack.folder}/audit.jsonl, and http://{stack.shard_http}/metrics
Logs: {stack.folder}/*.log. Ctrl-C ends everything."""


if __name__ == "__main__":
    main()
