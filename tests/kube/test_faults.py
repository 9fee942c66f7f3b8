"""What a real API server answers when it cannot serve: a version it has forgotten (410), too many requests (429), a
token that expired (401). Operator and pod controller get over each by themselves, and nobody withdraws demand
meanwhile: that is read from everything the shard was told, and from the requests themselves.
"""

from __future__ import annotations

import base64
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.kube.cuttable import Cuttable
from tests.kube.scene import OURS, Scene, played
from tools.kube.cluster import NAMESPACE, OPERATOR, POD_CONTROLLER, KubeCluster
from tools.kube.scripted_shard import ScriptedShard
from tools.kube.stack import CONTROLLER_PROGRAM, metrics
from tools.processes import Program, free_address
from tools.waiting import wait_until

REQUESTS = f"{OURS}/namespaces/default/capacityrequests"
PODS = "/api/v1/namespaces/default/pods"
FLOWS = "/apis/flowcontrol.apiserver.k8s.io/v1"
MERGE = "application/merge-patch+json"
# Nothing here is about speed: these are met only by what never happens.
PATIENCE = 180.0


@pytest.fixture
def cluster(control_plane_programs: None, tmp_path: Path) -> Iterator[KubeCluster]:
    """No scheduler: its verdicts are written by hand, and stay as they are."""
    with KubeCluster(tmp_path / "kube", scheduler=False, kwok=False) as made:
        made.install()
        yield made


class Workload:
    """Two pods that fit nowhere, whose requests the pod controller writes, and requests without pods; a way to the API
    server that can be cut, for both programs."""

    def __init__(self, cluster: KubeCluster, scene: Scene, controller: Program, between: Cuttable, at: str) -> None:
        self.cluster, self.scene, self.between = cluster, scene, between
        self._controller, self._at = controller, at
        self._made = 0

    def begin(self) -> None:
        self.add_pod()
        self.add_pod()
        self.add_requests(3)
        self.wait_told(5)
        self.first = {each["metadata"]["uid"] for each in self.cluster.items(REQUESTS)}

    def add_pod(self) -> None:
        self._made += 1
        name = f"pod-{self._made}"
        container = {"name": "c", "image": "pretend", "resources": {"requests": {"cpu": "1"}}}
        body = {"metadata": {"name": name}, "spec": {"containers": [container]}}
        status, answer = self.cluster.ask("POST", PODS, {"apiVersion": "v1", "kind": "Pod", **body})
        assert status == 201, answer
        verdict = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}
        change = {"status": {"conditions": [verdict]}}
        assert self.cluster.ask("PATCH", f"{PODS}/{name}/status", change, kind=MERGE)[0] == 200

    def add_requests(self, count: int) -> None:
        for _ in range(count):
            self._made += 1
            body = {"metadata": {"name": f"r-{self._made}"}, "spec": {"priority": 0, "resources": {"cpu": "1"}}}
            document = {"apiVersion": "bigfleet.lucy.sh/v1alpha1", "kind": "CapacityRequest", **body}
            status, answer = self.cluster.ask("POST", REQUESTS, document)
            assert status == 201, answer

    def told(self) -> list[int]:
        """The units of every roll-up so far."""
        return [sum(need.count for need in rollup.needs) for rollup in self.scene.shard.all("rollup")]

    def wait_told(self, units: int) -> None:
        wait_until(lambda: self.told()[-1:] == [units], seconds=PATIENCE, what=f"{units} are told", evidence=self.told)

    def answered(self, code: str) -> bool:
        """Whether both programs got such an answer to a watch."""
        return all(
            any(key[0].endswith("_api_requests_total") and {code, "WATCH"} <= set(key[1:]) for key in metrics(at))
            for at in (self.scene.http, self._at)
        )

    def wait_answered(self, code: str) -> None:
        wait_until(lambda: self.answered(code), seconds=PATIENCE, what=f"both were answered {code}")

    def check(self, units: int) -> None:
        """All of it is told in the end, acknowledged, and nothing was ever taken back."""
        self.wait_told(units)
        wait_until(
            lambda: all(each["status"]["phase"] == "Acknowledged" for each in self.cluster.items(REQUESTS)),
            seconds=PATIENCE,
            what="every request is acknowledged",
        )
        told = self.told()
        assert told == sorted(told), f"demand was withdrawn although nobody withdrew any: {told}"
        here = {each["metadata"]["uid"] for each in self.cluster.items(REQUESTS)}
        assert self.first <= here, "a request was withdrawn although its pod still waits"
        assert self._controller.alive and self.scene.operator.alive


@contextmanager
def at_work(cluster: KubeCluster, folder: Path, access: dict[str, Path]) -> Iterator[Workload]:
    """Both programs, each with its kubeconfig, on a way that can be cut."""
    between, at = Cuttable(cluster.ports["api"]), free_address()
    ways = {user: between.kubeconfig(path, folder) for user, path in access.items()}
    flags = ("--kubeconfig", str(ways[POD_CONTROLLER]), "--metrics-addr", at)
    program = [*CONTROLLER_PROGRAM, *flags, "--log-format", "json", "--no-leader-elect"]
    controller = Program("controller", program, folder)
    try:
        controller.start()
        with ScriptedShard() as shard, played(Scene(cluster, shard, folder, kubeconfig=ways[OPERATOR])) as scene:
            made = Workload(cluster, scene, controller, between, at)
            made.begin()
            yield made
    finally:
        controller.kill()
        between.close()


def own_access(cluster: KubeCluster) -> dict[str, Path]:
    return {user: cluster.kubeconfig(user) for user in (OPERATOR, POD_CONTROLLER)}


def test_a_version_that_etcd_has_thrown_away_is_listed_anew_and_nothing_is_withdrawn(
    cluster: KubeCluster, tmp_path: Path
) -> None:
    with at_work(cluster, tmp_path, own_access(cluster)) as work:
        work.between.cut(off=True)
        stood_at = cluster.ask("GET", REQUESTS)[1]["metadata"]["resourceVersion"]
        work.add_requests(2)
        work.add_pod()
        cluster.compact()
        work.scene.cluster_restarted = True
        cluster.restart_api_server()
        exactly = f"{REQUESTS}?resourceVersion={stood_at}&resourceVersionMatch=Exact"
        # A server that has just begun serves our kinds a little later than its own.
        answer = wait_until(
            lambda: next((status for status in (cluster.ask("GET", exactly)[0],) if status in (200, 410)), 0),
            seconds=PATIENCE,
            what="the API server serves our kinds again",
        )
        assert answer == 410, "etcd still has that version: this proves nothing"
        work.between.off = False
        work.check(8)
        relists = metrics(work.scene.http)[("bigfleet_operator_relists_total",)]
        assert relists >= 1, "no watch of the operator had expired"


def test_an_api_server_that_throttles_is_waited_out_and_nothing_is_withdrawn(
    cluster: KubeCluster, tmp_path: Path
) -> None:
    """API priority and fairness with one seat for both of our service accounts, which somebody sits on: a real 429 to
    everything they ask, by the API server's own count."""
    with at_work(cluster, tmp_path, own_access(cluster)) as work:
        one_seat(cluster)
        with seat_taken(cluster):
            for name, user in THROTTLED.items():
                leads_to_the_seat(cluster, name, user, ["*"], ["*"])
                # Until the API server has read the rule it serves them as before.
                wait_until(
                    lambda user=user: cluster.ask("GET", "/api/v1/nodes", user=user)[0] == 429,
                    seconds=PATIENCE,
                    what=f"{user} is throttled",
                )
            before = {name: counted(cluster, "rejected_requests_total", name) for name in THROTTLED}
            work.between.cut()
            work.add_requests(2)
            work.add_pod()
            for name, already in before.items():
                wait_until(
                    lambda name=name, already=already: counted(cluster, "rejected_requests_total", name) > already,
                    seconds=PATIENCE,
                    what=f"the API server refused a request of the {name}",
                )
            for name in THROTTLED:
                assert counted(cluster, "dispatched_requests_total", name) == 0, "it was served meanwhile"
            assert counted(cluster, "current_executing_requests", SITS) == 1
            assert work.told()[-1] == 5
        work.check(8)
        assert all(counted(cluster, "dispatched_requests_total", name) for name in THROTTLED), "the rule was gone"


SITS = "sits"
THROTTLED = {"operator": OPERATOR, "pod-controller": POD_CONTROLLER}


def one_seat(cluster: KubeCluster) -> None:
    """A priority level without a share of the seats (which lets one request in at a time all the same), and the only
    way to it: the operator's account changing a node, which it has no cause to do here."""
    limited = {
        "nominalConcurrencyShares": 0,
        "lendablePercent": 0,
        "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Reject"},
    }
    spec = {"type": "Limited", "limited": limited}
    flow_control(cluster, "prioritylevelconfigurations", "PriorityLevelConfiguration", "one-seat", spec)
    leads_to_the_seat(cluster, SITS, OPERATOR, ["patch"], ["nodes"])


def leads_to_the_seat(cluster: KubeCluster, name: str, user: str, verbs: list[str], resources: list[str]) -> None:
    rule = {"verbs": verbs, "apiGroups": ["*"], "resources": resources, "clusterScope": True, "namespaces": ["*"]}
    account = {"namespace": NAMESPACE, "name": user.rpartition(":")[2]}
    spec = {
        "priorityLevelConfiguration": {"name": "one-seat"},
        "matchingPrecedence": 2 if name == SITS else 3,
        "rules": [{"subjects": [{"kind": "ServiceAccount", "serviceAccount": account}], "resourceRules": [rule]}],
    }
    flow_control(cluster, "flowschemas", "FlowSchema", name, spec)


def flow_control(cluster: KubeCluster, path: str, kind: str, name: str, spec: dict[str, Any]) -> None:
    document = {"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    status, answer = cluster.ask("POST", f"{FLOWS}/{path}", document)
    assert status == 201, answer["message"]


def counted(cluster: KubeCluster, what: str, flow: str) -> float:
    return cluster.metric(f"apiserver_flowcontrol_{what}", priority_level="one-seat", flow_schema=flow)


@contextmanager
def seat_taken(cluster: KubeCluster) -> Iterator[None]:
    """A request whose body never ends. The API server does not end it either, so it has to sit where it should: one
    that came before the server had read the rule would sit elsewhere for good, and the seat would be free."""

    def rule_is_read() -> bool:
        cluster.ask("PATCH", "/api/v1/nodes/none", {}, user=OPERATOR, kind=MERGE)
        return counted(cluster, "dispatched_requests_total", SITS) > 0

    wait_until(rule_is_read, seconds=PATIENCE, what="the API server has read where that request belongs")
    head = (
        f"PATCH /api/v1/nodes/none HTTP/1.1\r\nHost: c\r\nAuthorization: Bearer {cluster.tokens[OPERATOR]}\r\n"
        f"Content-Type: {MERGE}\r\nContent-Length: 1000\r\n\r\n{{"
    )
    plain = socket.create_connection(("127.0.0.1", cluster.ports["api"]), timeout=PATIENCE)
    with cluster.trust().wrap_socket(plain, server_hostname="127.0.0.1") as held:
        held.sendall(head.encode())
        wait_until(
            lambda: counted(cluster, "current_executing_requests", SITS) == 1,
            seconds=PATIENCE,
            what="somebody sits on the seat",
        )
        yield


def test_a_token_that_has_expired_is_waited_out_until_its_file_has_a_new_one_and_nothing_is_withdrawn(
    cluster: KubeCluster, tmp_path: Path
) -> None:
    tokens = {user: tmp_path / f"{user.rpartition(':')[2]}.token" for user in (OPERATOR, POD_CONTROLLER)}
    access = {}
    for user, path in tokens.items():
        path.write_text(issued(cluster, user))
        document = yaml.safe_load(cluster.kubeconfig(user).read_text())
        document["users"][0]["user"] = {"tokenFile": str(path)}
        access[user] = tmp_path / f"{path.stem}.kubeconfig"
        access[user].write_text(yaml.safe_dump(document))
    with at_work(cluster, tmp_path, access) as work:
        for user, path in tokens.items():
            path.write_text(expired(cluster, issued(cluster, user)))
            cluster.tokens["expired"] = path.read_text()
            assert cluster.ask("GET", "/api/v1/nodes", user="expired")[0] == 401
        work.between.cut()
        work.add_requests(2)
        work.add_pod()
        work.wait_answered("401")
        assert work.told()[-1] == 5
        for user, path in tokens.items():
            path.write_text(issued(cluster, user))
        work.check(8)


def issued(cluster: KubeCluster, user: str) -> str:
    """A token of the service account as the API server issues it."""
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{user.rpartition(':')[2]}/token"
    document = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    status, answer = cluster.ask("POST", path, document)
    assert status == 201, answer
    token: str = answer["status"]["token"]
    return token


def expired(cluster: KubeCluster, token: str) -> str:
    """The same claims, over since two minutes, signed with the cluster's own key: the API server issues none for less
    than ten."""
    head, claims, _ = token.split(".")
    said = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    now = int(time.time())
    said.update(iat=now - 720, nbf=now - 720, exp=now - 120)
    signed = f"{head}.{_encoded(json.dumps(said).encode())}"
    key = serialization.load_pem_private_key((cluster.folder / "service-accounts.key").read_bytes(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    return f"{signed}.{_encoded(key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
