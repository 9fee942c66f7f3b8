"""Makes the pods of a node leave, through the eviction API alone, so that no PodDisruptionBudget is ever broken.

One task per node, each with its own deadline, which the session keeps: it ends a task when the grace is over. A pod
that a budget protects is asked again; DaemonSet and mirror pods belong to the node and stay.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

import structlog

from bigfleet.operator.core.mirror.facts import Origin
from bigfleet.operator.kube.client import ApiError, Client, UnreachableError
from bigfleet.operator.reading.view import ClusterView, PodEntry
from bigfleet.operator.shell.metrics import OperatorMetrics

log = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0
AT_ONCE_PER_NODE = 10
TOO_MANY = 429
FORBIDDEN = 403
# An API server that has just started forbids everything until it has read its rules.
FORBIDDEN_FOR_SECONDS = 30.0


class Evictions:
    """`ended(machine, error)` is told when no pod that can be evicted is left, or why it cannot go on."""

    def __init__(
        self, client: Client, view: ClusterView, metrics: OperatorMetrics, ended: Callable[[str, str], None]
    ) -> None:
        self._client = client
        self._view = view
        self._metrics = metrics
        self._ended = ended
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    def begin(self, machine: str) -> None:
        self.stop(machine)
        self._tasks[machine] = asyncio.get_running_loop().create_task(self._empty(machine))

    def stop(self, machine: str) -> None:
        if (task := self._tasks.pop(machine, None)) is not None:
            task.cancel()

    def changed(self) -> None:
        """Pods came or went: whoever waits for that looks at once."""
        self._changed.set()

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for machine in list(self._tasks):
            self.stop(machine)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _empty(self, machine: str) -> None:
        error = ""
        allowed = time.monotonic()
        try:
            while pods := self._movable(machine):
                refused = await self._round(pods)
                if refused is None:
                    allowed = time.monotonic()
                elif time.monotonic() - allowed > FORBIDDEN_FOR_SECONDS:
                    raise refused
                self._changed.clear()
                if self._movable(machine):
                    try:
                        async with asyncio.timeout(LOOK_SECONDS * random.uniform(0.8, 1.2)):
                            await self._changed.wait()
                    except TimeoutError:
                        pass
        except ApiError as last:
            error = str(last)
        if self._tasks.get(machine) is asyncio.current_task():
            del self._tasks[machine]
            self._ended(machine, error)

    def _movable(self, machine: str) -> list[tuple[str, PodEntry]]:
        node = self._view.node_of(machine)
        if node is None:
            return []
        return [each for each in self._view.pods_on(node.metadata.name) if each[1].origin is not Origin.DAEMON]

    async def _round(self, pods: list[tuple[str, PodEntry]]) -> ApiError | None:
        """Ask every pod to leave; what we are not allowed to ask."""
        forbidden = None
        asked = [each for each in pods if not each[1].terminating]
        for start in range(0, len(asked), AT_ONCE_PER_NODE):
            results = await asyncio.gather(
                *(self._evict(key, entry.uid) for key, entry in asked[start : start + AT_ONCE_PER_NODE]),
                return_exceptions=True,
            )
            for result in results:
                if isinstance(result, ApiError) and result.status == FORBIDDEN:
                    forbidden = result
                if isinstance(result, BaseException) and not isinstance(result, ApiError | UnreachableError):
                    raise result
        return forbidden

    async def _evict(self, key: str, uid: str) -> None:
        namespace, _, name = key.partition("/")
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        try:
            await self._client.create(f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", body)
        except ApiError as error:
            self._metrics.evictions.labels(_outcome(error)).inc()
            if error.status in (404, 409):
                return
            log.info("pod stays for now", pod=key, err=error.causes or error.message)
            raise
        self._metrics.evictions.labels("accepted").inc()


def _outcome(error: ApiError) -> str:
    if error.status == TOO_MANY:
        return (
            "budget"
            if "DisruptionBudget" in (error.causes + error.message) or "disruption" in error.message
            else "throttled"
        )
    return {404: "gone", 409: "gone", FORBIDDEN: "forbidden"}.get(error.status, "error")
