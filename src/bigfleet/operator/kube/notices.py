"""Events in the cluster: what a person reads under `kubectl describe`.

One Event per object and reason within an hour, whatever happens how often; never waited for, dropped when too many
wait. Losing one must not cost anything but the notice.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from datetime import UTC, datetime

import structlog

from bigfleet.model.names import API_GROUP, API_VERSION
from bigfleet.operator.kube.client import ApiError, Client, UnreachableError

log = structlog.get_logger(__name__)

REPEATED_AFTER = 3600.0
REMEMBERED = 50_000
WAITING = 1000
_VERSIONS = {"Pod": "v1", "Node": "v1"}


class Notices:
    """Writes Events for one component."""

    def __init__(self, client: Client, component: str) -> None:
        self._client = client
        self._component = component
        self._told: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._queue: asyncio.Queue[tuple[str, str, str, str, str]] = asyncio.Queue(WAITING)
        self.dropped = 0

    def tell(self, kind: str, key: str, uid: str, reason: str, message: str) -> None:
        now = time.monotonic()
        name = (uid or key, reason)
        last = self._told.get(name)
        if last is not None and now - last < REPEATED_AFTER:
            return
        self._told[name] = now
        self._told.move_to_end(name)
        if len(self._told) > REMEMBERED:
            self._told.popitem(last=False)
        try:
            self._queue.put_nowait((kind, key, uid, reason, message))
        except asyncio.QueueFull:
            self.dropped += 1

    async def run(self) -> None:
        while True:
            kind, key, uid, reason, message = await self._queue.get()
            try:
                await self._write(kind, key, uid, reason, message)
            except (ApiError, UnreachableError) as error:
                self.dropped += 1
                log.info("event not written", object=key, reason=reason, err=str(error))

    async def _write(self, kind: str, key: str, uid: str, reason: str, message: str) -> None:
        namespace, _, name = key.rpartition("/")
        # What has no namespace is told about in `default`, as Kubernetes itself does.
        where = namespace or "default"
        now = datetime.now(UTC)
        stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        digest = hashlib.sha256(f"{key}{reason}{now.timestamp()}".encode()).hexdigest()[:16]
        involved = {
            "kind": kind,
            "name": name,
            "apiVersion": _VERSIONS.get(kind, f"{API_GROUP}/{API_VERSION}"),
            **({"namespace": namespace} if namespace else {}),
            **({"uid": uid} if uid else {}),
        }
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{name[:200]}.{digest}", "namespace": where},
            "involvedObject": involved,
            "reason": reason,
            "message": message[:1024],
            "type": "Warning",
            "source": {"component": self._component},
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }
        await self._client.create(f"/api/v1/namespaces/{where}/events", event)
