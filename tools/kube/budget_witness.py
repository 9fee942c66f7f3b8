"""Whether a PodDisruptionBudget was ever broken by an eviction, by the API server's own records.

Watches pods and the budget from outside. A budget is broken when fewer pods of it are healthy than it asks for although
nobody but an evictor took one: an eviction is known by the condition that the API server writes on its pod.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from typing import Any

from tools.kube.cluster import KubeCluster

# One watch lasts so long; the next goes on where it ended.
_WATCH_SECONDS = 3


class BudgetWitness:
    """One budget of the namespace `default`, from entering until leaving."""

    def __init__(self, cluster: KubeCluster, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self._pods: dict[str, dict[str, Any]] = {}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.evicted: set[str] = set()
        self.broken: list[str] = []

    def __enter__(self) -> BudgetWitness:
        budget = self._cluster.ask("GET", f"/apis/policy/v1/namespaces/default/poddisruptionbudgets/{self._name}")[1]
        self._least = int(budget["spec"]["minAvailable"])
        self._labels = budget["spec"]["selector"]["matchLabels"]
        selector = ",".join(f"{key}%3D{value}" for key, value in self._labels.items())
        self._path = f"/api/v1/namespaces/default/pods?labelSelector={selector}"
        status, listed = self._cluster.ask("GET", self._path)
        assert status == 200, listed
        self._pods = {pod["metadata"]["uid"]: pod for pod in listed["items"]}
        self._version = listed["metadata"]["resourceVersion"]
        assert self._healthy() >= self._least, "the budget is not met to begin with"
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join(10 * _WATCH_SECONDS)
        if self._thread.is_alive():
            self.broken.append("the watch did not end with the test")

    def _watch(self) -> None:
        """Every version of every pod, in the order the API server stored them, until told to end."""
        while not self._ends.is_set():
            request = urllib.request.Request(
                f"{self._cluster.url}{self._path}&watch=true&allowWatchBookmarks=true"
                f"&timeoutSeconds={_WATCH_SECONDS}&resourceVersion={self._version}",
                headers={"Authorization": f"Bearer {self._cluster.tokens['admin']}"},
            )
            try:
                with urllib.request.urlopen(request, timeout=60, context=self._cluster.trust()) as answer:
                    for line in answer:
                        self._heard(json.loads(line))
            except (OSError, ValueError) as error:
                self.broken.append(f"the watch failed, so nobody knows: {error}")
                return

    def _heard(self, event: dict[str, Any]) -> None:
        pod = event["object"]
        if event["type"] == "ERROR":
            raise ValueError(pod.get("message", "the watch expired"))
        self._version = pod["metadata"]["resourceVersion"]
        if event["type"] == "BOOKMARK":
            return
        uid = pod["metadata"]["uid"]
        if event["type"] == "DELETED":
            self._pods.pop(uid, None)
        else:
            self._pods[uid] = pod
        evicted = any(
            each["type"] == "DisruptionTarget" and each.get("reason") == "EvictionByEvictionAPI"
            for each in pod["status"].get("conditions", ())
        )
        if evicted and uid not in self.evicted:
            self.evicted.add(uid)
            if (healthy := self._healthy()) < self._least:
                self.broken.append(f"{pod['metadata']['name']} was evicted and {healthy} of {self._least} were left")

    def _healthy(self) -> int:
        """As the disruption controller counts: ready, not leaving and not picked for leaving."""
        return sum(
            not pod["metadata"].get("deletionTimestamp")
            and not any(each["type"] == "DisruptionTarget" for each in pod["status"].get("conditions", ()))
            and any(
                each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", ())
            )
            for pod in self._pods.values()
        )
