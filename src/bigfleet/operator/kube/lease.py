"""Who of several replicas works: a Lease that its holder renews and others take when it stops.

Time is judged by how long the record has not changed on our own clock, never by the times written in it: clocks of two
nodes disagree.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import msgspec
import structlog

from bigfleet.operator.kube.client import ApiError, Client, UnreachableError
from bigfleet.operator.kube.objects import Lease

log = structlog.get_logger(__name__)

# Long enough for an API server that restarts: a change of the holder costs a list of everything.
DURATION_SECONDS = 30
RENEW_SECONDS = 5.0
# A holder that could not renew for so long stops before anybody else may begin.
GIVE_UP_SECONDS = 20.0


class Election:
    """One candidate for one Lease."""

    def __init__(self, client: Client, namespace: str, name: str, identity: str) -> None:
        self._client = client
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._seen: tuple[str, float] = ("", 0.0)
        self.leading = False

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lead, work while it lasts, and end when it is lost: a process that lost it starts over."""
        while not await self._attempt():
            await asyncio.sleep(RENEW_SECONDS / 2 * random.uniform(0.8, 1.2))
        self.leading = True
        log.info("leading", lease=self._name, identity=self._identity)
        working = asyncio.ensure_future(work())
        renewing = asyncio.ensure_future(self._keep())
        try:
            await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.leading = False
            for task in (working, renewing):
                task.cancel()
            results = await asyncio.gather(working, renewing, return_exceptions=True)
            with contextlib.suppress(ApiError, UnreachableError, TimeoutError):
                async with asyncio.timeout(2.0):
                    await self._release()
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
                raise result

    async def _keep(self) -> None:
        renewed = time.monotonic()
        while time.monotonic() - renewed < GIVE_UP_SECONDS:
            await asyncio.sleep(RENEW_SECONDS if time.monotonic() - renewed < RENEW_SECONDS else 1.0)
            try:
                async with asyncio.timeout(RENEW_SECONDS):
                    if await self._attempt():
                        renewed = time.monotonic()
                    else:
                        log.error("the lead was taken by another replica", lease=self._name)
                        return
            except (TimeoutError, UnreachableError, ApiError) as error:
                log.warning("lease not renewed", lease=self._name, err=str(error))
        log.error("the lead could not be kept", lease=self._name)

    async def _attempt(self) -> bool:
        """Take or renew the lease; whether it is ours."""
        try:
            lease = msgspec.json.decode(await self._client.get(f"{self._path}/{self._name}"), type=Lease)
        except ApiError as error:
            if error.status != 404:
                if self.leading:
                    raise
                log.warning("lease not read", lease=self._name, err=str(error))
                return False
            return await self._write(None, 0, "")
        except UnreachableError as error:
            if self.leading:
                raise
            log.warning("lease not read", lease=self._name, err=str(error))
            return False
        holder, version = lease.spec.holder_identity, lease.metadata.resource_version
        now = time.monotonic()
        if self._seen[0] != version:
            self._seen = (version, now)
        expired = now - self._seen[1] > (lease.spec.lease_duration_seconds or DURATION_SECONDS)
        if holder and holder != self._identity and not expired:
            return False
        turns = lease.spec.lease_transitions + (holder != self._identity)
        acquired = lease.spec.acquire_time if holder == self._identity else None
        return await self._write(version, turns, acquired or "")

    async def _write(self, version: str | None, turns: int, acquired: str) -> bool:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": self._name,
                "namespace": self._namespace,
                **({"resourceVersion": version} if version else {}),
            },
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": DURATION_SECONDS,
                "acquireTime": acquired or now,
                "renewTime": now,
                "leaseTransitions": turns,
            },
        }
        try:
            if version is None:
                answer = await self._client.create(self._path, body)
            else:
                answer = await self._client.replace(f"{self._path}/{self._name}", body)
        except ApiError as error:
            if error.status == 409:
                return False
            if self.leading:
                raise
            log.warning("lease not taken", lease=self._name, err=str(error))
            return False
        written = msgspec.json.decode(answer, type=Lease)
        self._seen = (written.metadata.resource_version, time.monotonic())
        return True

    async def _release(self) -> None:
        lease = msgspec.json.decode(await self._client.get(f"{self._path}/{self._name}"), type=Lease)
        if lease.spec.holder_identity == self._identity:
            body = {"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": {"holderIdentity": ""}}
            await self._client.patch(f"{self._path}/{self._name}", body)
