"""A Kubernetes control plane as child processes on loopback: etcd, API server, controller manager, scheduler, kwok.

RBAC is on; every cluster has its own folder, six consecutive ports and tokens, so several run side by side. Only what
was started here is ever ended, by its pid.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from prometheus_client.parser import text_string_to_metric_families

from tools.kube.build import BIN
from tools.processes import Program
from tools.waiting import wait_until

PORTS = 6
START_SECONDS = 120.0
STAGES = Path(__file__).with_name("stages.yaml")
CRDS = Path(__file__).resolve().parents[2] / "deploy" / "crds"
RBAC = Path(__file__).resolve().parents[2] / "deploy" / "rbac"
NAMESPACE = "bigfleet-system"
OPERATOR = f"system:serviceaccount:{NAMESPACE}:bigfleet-operator"
POD_CONTROLLER = f"system:serviceaccount:{NAMESPACE}:bigfleet-unschedulable-pod-controller"
# What the controllers and the scheduler may ask a second; Kubernetes' own defaults (20 to 50) bind 1,000 pods in 20 s.
RATES = ("--kube-api-qps=300", "--kube-api-burst=600")


class KubeCluster:
    """One control plane. `start` returns once the API server answers and its controllers have begun."""

    def __init__(
        self,
        folder: Path,
        *,
        scheduler: bool = True,
        kwok: bool = True,
        manager: bool = True,
        admission: Sequence[str] = (),
        scheduler_config: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = folder
        self.admission = admission
        self.scheduler_config = scheduler_config
        folder.mkdir(parents=True, exist_ok=True)
        self._with = {"scheduler": scheduler, "kwok": kwok, "manager": manager}
        base = _consecutive_ports()
        self.ports = dict(
            zip(("api", "etcd", "peer", "manager", "scheduler", "kwok"), range(base, base + 6), strict=True)
        )
        self.url = f"https://127.0.0.1:{self.ports['api']}"
        self.tokens = {
            user: secrets.token_hex(16)
            for user in ("admin", OPERATOR, POD_CONTROLLER, "system:kube-controller-manager", "system:kube-scheduler")
        }
        self.programs: dict[str, Program] = {}
        self._connections = threading.local()

    # ----------------------------------------------------------------------------------------------------- lifetime

    def start(self) -> KubeCluster:
        began = time.monotonic()
        self._write_keys()
        for name, argv in self._command_lines().items():
            if self._with.get(name, True):
                self.programs[name] = Program(name, argv, self.folder)
        try:
            self.programs["etcd"].start()
            self.programs["apiserver"].start()
            self._wait_ready()
            for user in self.tokens:
                self._write_kubeconfig(user)
            for name in ("manager", "scheduler", "kwok"):
                if name in self.programs:
                    self.programs[name].start()
            self._wait_controllers()
        except BaseException:
            self.stop()
            raise
        self.seconds_to_start = time.monotonic() - began
        return self

    def stop(self) -> None:
        """Those that watch the API server first, so that none of them waits for it."""
        for name in ("kwok", "scheduler", "manager", "apiserver", "etcd"):
            if (program := self.programs.get(name)) is not None and program.lives:
                program.kill()

    def restart_api_server(self) -> None:
        """Killed and started again: it forgets what it kept in memory, and what etcd no longer has is gone for good."""
        server = self.programs["apiserver"]
        server.kill()
        server.start()
        self._wait_ready()

    def compact(self) -> None:
        """Throw away every version of every object but the present ones, as API servers have etcd do every 5 min."""
        version = self.ask("GET", "/api/v1/namespaces")[1]["metadata"]["resourceVersion"]
        endpoint = f"--endpoints=http://127.0.0.1:{self.ports['etcd']}"
        subprocess.run([str(BIN / "etcdctl"), endpoint, "compact", version], check=True, capture_output=True)

    def install(self, *, rbac: bool = True) -> None:
        """Our kinds and what our two programs may do."""
        self.kubectl("apply", "--server-side", "-f", str(CRDS))
        self.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
        if rbac:
            self.kubectl("apply", "-f", str(RBAC))

    def __enter__(self) -> KubeCluster:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -------------------------------------------------------------------------------------------------------- asking

    def kubeconfig(self, user: str = "admin") -> Path:
        return self.folder / f"{user.rpartition(':')[2]}.kubeconfig"

    def kubectl(self, *arguments: str, given: str | None = None, check: bool = True) -> str:
        """kubectl as the administrator; its output. `given` is standard input."""
        done = subprocess.run(
            [str(BIN / "kubectl"), f"--kubeconfig={self.kubeconfig()}", *arguments],
            input=given,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "HOME": str(self.folder)},
        )
        if check and done.returncode:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout if check else done.stdout + done.stderr

    def apply(self, *objects: Mapping[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", given=yaml.safe_dump_all(objects))

    def get(self, *what: str) -> Any:
        """`kubectl get … -o json`."""
        return json.loads(self.kubectl("get", *what, "-o", "json"))

    def ask(
        self, method: str, path: str, body: object = None, *, user: str = "admin", kind: str = "application/json"
    ) -> tuple[int, Any]:
        """One request, without kubectl's start-up time and on a connection that stays open."""
        status, content = self._exchange(method, path, None if body is None else json.dumps(body), user, kind)
        try:
            return status, json.loads(content or b"null")
        except ValueError:
            # A server too busy to serve says so in plain words.
            return status, content.decode(errors="replace")

    def items(self, path: str) -> list[dict[str, Any]]:
        status, answer = self.ask("GET", path)
        assert status == 200, answer
        found: list[dict[str, Any]] = answer["items"]
        return found

    def metric(self, name: str, **labels: str) -> float:
        """A counter or gauge of the API server itself, summed over what has these labels; 0 where it has none."""
        status, content = self._exchange("GET", "/metrics", None, "admin", "text/plain")
        assert status == 200, content
        # Parsing all of them takes longer than serving them.
        lines = [line for line in content.decode().splitlines() if line.startswith(name)]
        return sum(
            sample.value
            for family in text_string_to_metric_families("\n".join(lines) + "\n")
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    # ------------------------------------------------------------------------------------------------------- details

    def _command_lines(self) -> dict[str, list[str]]:
        ports, keys = self.ports, str(self.folder / "service-accounts.key")
        etcd = f"http://127.0.0.1:{ports['etcd']}"
        peer = f"http://127.0.0.1:{ports['peer']}"
        served = ("--bind-address=127.0.0.1", f"--cert-dir={self.folder / 'certs'}")
        manager = self.kubeconfig("system:kube-controller-manager")
        scheduler = self.kubeconfig("system:kube-scheduler")
        return {
            "etcd": [
                *(str(BIN / "etcd"), "--name=m0", f"--data-dir={self.folder / 'etcd'}", "--unsafe-no-fsync"),
                *(f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}", f"--listen-peer-urls={peer}"),
                *(f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=m0={peer}", "--log-level=error"),
            ],
            "apiserver": [
                *(str(BIN / "kube-apiserver"), f"--etcd-servers={etcd}", f"--secure-port={ports['api']}", *served),
                *("--authorization-mode=RBAC", f"--token-auth-file={self.folder / 'tokens.csv'}"),
                *("--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.0.0.0/16"),
                *("--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={keys}"),
                *(f"--service-account-signing-key-file={keys}", "--profiling=false"),
                *("--max-requests-inflight=800", "--max-mutating-requests-inflight=400"),
                *((f"--enable-admission-plugins={','.join(self.admission)}",) if self.admission else ()),
            ],
            "manager": [
                *(str(BIN / "kube-controller-manager"), f"--kubeconfig={manager}", *served, "--leader-elect=false"),
                *(f"--secure-port={ports['manager']}", "--use-service-account-credentials", *RATES),
                *(f"--service-account-private-key-file={keys}", f"--root-ca-file={self._ca()}"),
                *(f"--authentication-kubeconfig={manager}", f"--authorization-kubeconfig={manager}"),
                "--concurrent-replicaset-syncs=20",
            ],
            "scheduler": [
                *(str(BIN / "kube-scheduler"), f"--kubeconfig={scheduler}", *served, "--leader-elect=false", *RATES),
                *(f"--secure-port={ports['scheduler']}", f"--authentication-kubeconfig={scheduler}"),
                *(f"--authorization-kubeconfig={scheduler}", *self._scheduler_profile()),
            ],
            "kwok": [
                *(str(BIN / "kwok"), f"--kubeconfig={self.kubeconfig()}", f"--config={STAGES}", "--node-ip=10.255.0.1"),
                *("--manage-all-nodes=false", "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake"),
                *("--node-lease-duration-seconds=40", f"--server-address=127.0.0.1:{ports['kwok']}"),
            ],
        }

    def _scheduler_profile(self) -> tuple[str, ...]:
        if self.scheduler_config is None:
            return ()
        path = self.folder / "scheduler.yaml"
        # A file makes the scheduler deaf to flags that it can hold: those are repeated in it.
        client = {"kubeconfig": str(self.kubeconfig("system:kube-scheduler")), "qps": 300, "burst": 600}
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": client,
            **self.scheduler_config,
        }
        path.write_text(yaml.safe_dump(document))
        return (f"--config={path}",)

    def _write_keys(self) -> None:
        key = rsa.generate_private_key(65537, 2048)
        pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        (self.folder / "service-accounts.key").write_bytes(key.private_bytes(*pem))
        lines = []
        for user, token in self.tokens.items():
            groups = "system:masters" if user == "admin" else _groups(user)
            lines.append(f'{token},{user},{user},"{groups}"\n')
        (self.folder / "tokens.csv").write_text("".join(lines))

    def _write_kubeconfig(self, user: str) -> None:
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": self.url, "certificate-authority": str(self._ca())}}],
            "users": [{"name": "u", "user": {"token": self.tokens[user]}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        self.kubeconfig(user).write_text(yaml.safe_dump(document))

    def _ca(self) -> Path:
        # The certificate the API server makes for itself carries the authority that signed it.
        return self.folder / "certs" / "apiserver.crt"

    def trust(self) -> ssl.SSLContext:
        if not hasattr(self, "_context"):
            self._context = ssl.create_default_context(cafile=str(self._ca()))
        return self._context

    def _wait_ready(self) -> None:
        server = self.programs["apiserver"]

        def ready() -> bool:
            assert server.alive, f"the API server ended: {server.tail()}"
            if not self._ca().exists():
                return False
            try:
                return self.ask("GET", "/api/v1/namespaces/kube-system")[0] == 200 and self._is_ready()
            except (OSError, ValueError):
                return False

        wait_until(ready, seconds=START_SECONDS, what="the API server is ready", evidence=server.tail)

    def _is_ready(self) -> bool:
        return self._exchange("GET", "/readyz", None, "admin", "application/json")[0] == 200

    def _exchange(self, method: str, path: str, body: str | None, user: str, kind: str) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {self.tokens[user]}", "Content-Type": kind}
        fresh = getattr(self._connections, "open", None) is None
        if fresh:
            self._connections.open = http.client.HTTPSConnection(
                "127.0.0.1", self.ports["api"], timeout=60, context=self.trust()
            )
        try:
            self._connections.open.request(method, path, body=body, headers=headers)
            answer = self._connections.open.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._connections.open = None
            if not fresh and method == "GET":
                # The server closed a connection it had kept; what only reads is asked once more on a new one.
                return self._exchange(method, path, body, user, kind)
            raise OSError(f"{method} {path}: {error}") from error

    def _wait_controllers(self) -> None:
        """Pods can be created once the controller manager has made their default service account."""
        manager = self.programs.get("manager")
        if manager is None:
            return

        def ready() -> bool:
            assert manager.alive, f"the controller manager ended: {manager.tail()}"
            return self.ask("GET", "/api/v1/namespaces/default/serviceaccounts/default")[0] == 200

        wait_until(ready, seconds=START_SECONDS, what="the controllers have begun", evidence=manager.tail)


def _groups(user: str) -> str:
    if not user.startswith("system:serviceaccount:"):
        return "system:authenticated"
    return f"system:serviceaccounts,system:serviceaccounts:{user.split(':')[2]},system:authenticated"


def _consecutive_ports(tries: Iterable[int] = range(200)) -> int:
    """The first of six loopback ports in a row that nobody listens on, drawn so that neighbours rarely meet."""
    for _ in tries:
        base = 20000 + secrets.randbelow(2000) * 6
        sockets = []
        try:
            for port in range(base, base + PORTS):
                probe = socket.socket()
                sockets.append(probe)
                probe.bind(("127.0.0.1", port))
            return base
        except OSError:
            continue
        finally:
            for probe in sockets:
                probe.close()
    raise RuntimeError("no six consecutive free ports on loopback")
