"""The providers of a shard, by name and by region: one client and one channel each, opened and closed here.

One entry stands for one implementation in one region; names are unique and label metrics, logs and inventory keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import grpc.aio

from bigfleet.provider.client.client import CallLimits, ProviderClient
from bigfleet.provider.client.fence import TokenSource
from bigfleet.provider.client.metrics import RpcMetrics
from bigfleet.provider.client.retry import RetryPolicy
from bigfleet.transport.certificates import PLAINTEXT, TlsFiles
from bigfleet.transport.channel import channel
from bigfleet.transport.errors import FlagError, TransportError
from bigfleet.transport.identity import provider

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class ProviderEndpoint:
    """Where a provider is. `identity` set: its certificate must carry `bigfleet://provider/<identity>`."""

    name: str
    address: str
    region: str = ""
    tls: TlsFiles = PLAINTEXT
    insecure: bool = False
    server_name: str = ""
    identity: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise FlagError(
                f"provider name {self.name!r} is not usable; give 1 to 63 letters, digits, '.', '_' or '-', "
                "beginning and ending with a letter or digit"
            )
        if not self.address:
            raise FlagError(f"provider {self.name}: address is empty; give host:port")
        if self.identity and not self.tls.enabled:
            raise TransportError(
                f"provider {self.name}: identity {self.identity!r} cannot be checked in plaintext; "
                "give --tls-cert, --tls-key and --tls-ca"
            )

    @classmethod
    def parse(cls, text: str, *, tls: TlsFiles = PLAINTEXT, insecure: bool = False) -> ProviderEndpoint:
        """`name=address` or `name@region=address`, the form of `--provider`."""
        label, equals, address = text.partition("=")
        if not equals or not address:
            raise FlagError(f"--provider {text!r} is not name=host:port or name@region=host:port")
        name, _, region = label.partition("@")
        return cls(name, address, region, tls, insecure)


class ProviderRegistry:
    """Names to clients, in the order they were added."""

    def __init__(
        self,
        *,
        tokens: TokenSource | None = None,
        limits: CallLimits | None = None,
        retry: RetryPolicy | None = None,
        metrics: RpcMetrics | None = None,
    ) -> None:
        self.metrics = metrics if metrics is not None else RpcMetrics()
        self._tokens = tokens
        self._limits = limits
        self._retry = retry
        self._entries: dict[str, tuple[ProviderEndpoint, grpc.aio.Channel, ProviderClient]] = {}

    def add(self, endpoint: ProviderEndpoint) -> ProviderClient:
        """Open a channel to the endpoint (it connects at its first call) and return the client."""
        if endpoint.name in self._entries:
            raise FlagError(f"provider {endpoint.name} is configured twice; names must be unique")
        opened = channel(
            endpoint.address,
            tls=endpoint.tls,
            insecure=endpoint.insecure,
            server_name=endpoint.server_name,
            server_identity=provider(endpoint.identity) if endpoint.identity else None,
        )
        client = ProviderClient(
            endpoint.name,
            opened,
            tokens=self._tokens,
            limits=self._limits,
            retry=self._retry,
            metrics=self.metrics,
        )
        self._entries[endpoint.name] = (endpoint, opened, client)
        return client

    def __getitem__(self, name: str) -> ProviderClient:
        try:
            return self._entries[name][2]
        except KeyError:
            known = ", ".join(self._entries) or "none"
            raise KeyError(f"provider {name!r} is not configured; configured are: {known}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProviderClient]:
        return iter([client for _, _, client in self._entries.values()])

    def endpoint(self, name: str) -> ProviderEndpoint:
        return self._entries[name][0]

    def in_region(self, region: str) -> tuple[ProviderClient, ...]:
        return tuple(client for endpoint, _, client in self._entries.values() if endpoint.region == region)

    def regions(self) -> tuple[str, ...]:
        return tuple(sorted({endpoint.region for endpoint, _, _ in self._entries.values()}))

    async def remove(self, name: str) -> None:
        """Close a provider's channel and drop its metric series."""
        _, opened, _ = self._entries.pop(name)
        await opened.close(None)
        self.metrics.forget(name)

    async def close(self) -> None:
        for _, opened, _ in self._entries.values():
            await opened.close(None)
        self._entries.clear()
