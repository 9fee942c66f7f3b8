"""A cluster to play with: a real control plane, kwok, a shard, the operator and the pod controller, until Ctrl-C.

python -m tools.kube.demo
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from tools.kube.build import BIN, build
from tools.kube.cluster import KubeCluster
from tools.kube.stack import Stack


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=0.0, help="end by itself after so long; 0 waits for Ctrl-C")
    parser.add_argument("--sums", action="store_true", help="tell the shard sums alone")
    options = parser.parse_args()
    build()
    with tempfile.TemporaryDirectory(prefix="bigfleet-kube-demo-") as folder:
        print("starting etcd, API server, controller manager, scheduler and kwok ...", flush=True)
        with KubeCluster(Path(folder) / "kube") as cluster:
            cluster.install()
            print(f"control plane ready after {cluster.seconds_to_start:.0f} s; starting BigFleet ...", flush=True)
            with Stack(Path(folder) / "bigfleet", {"demo": cluster}, operator_flags=["--sums"] if options.sums else []):
                print(_guide(cluster, Path(folder)), flush=True)
                try:
                    time.sleep(options.seconds or 1e9)
                except KeyboardInterrupt:
                    print("stopping")


def _guide(cluster: KubeCluster, folder: Path) -> str:
    return f"""
There is no node yet. In another terminal:

    export KUBECONFIG={cluster.kubeconfig()} PATH={BIN}:$PATH
    kubectl create deployment web --image=pretend --replicas=20
    kubectl set resources deployment web --requests=cpu=2,memory=4Gi
    kubectl get pods,nodes,capacityrequests,upcomingnodes,availablecapacities
    kubectl scale deployment web --replicas=0     # and the machines are given back

Logs: {folder}/bigfleet/*.log. Ctrl-C ends everything."""


if __name__ == "__main__":
    main()
