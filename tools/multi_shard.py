"""A coordinator, several shards and one pretend provider as child processes on fixed loopback ports.

For tests and benchmarks of the fleet as a whole: each of them may be stopped and started again where the others expect
it. Zone `z<n>` is the n-th shard's, so what each owns is known beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import yaml

from bigfleet.model.names import ZONE_LABEL
from bigfleet.transport import channel
from bigfleet.wire import coordinator_pb2 as pb
from bigfleet.wire import coordinator_pb2_grpc
from tools.coordinators import Coordinators
from tools.processes import BIGFLEET, INTERPRETED, Program, free_address
from tools.waiting import until

QUICK = {
    "cycle-interval": "500ms",
    "early-cycle-interval": "50ms",
    "reconcile-interval": "500ms",
    "coordinator-heartbeat-interval": "200ms",
    "reclaim-hold": "0",
    "reclaim-cap-fraction": 0,
}
REBALANCE = (
    *("--rebalance-interval", "200ms", "--rebalance-after", "0s"),
    *("--rebalance-margin", "0", "--rebalance-settle", "0s"),
)


class MultiShard:
    """Shards s0, s1, … with `machines` each, 4 vCPU apiece; `settings` are the shards' beyond the quick ones."""

    def __init__(
        self,
        folder: Path,
        machines: Sequence[int],
        *,
        settings: Mapping[str, Any] | None = None,
        rebalance: Sequence[str] = REBALANCE,
        environment: Mapping[str, str] = INTERPRETED,
        offerings: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """`offerings` are the provider's beyond those machines, as its catalogue has them."""
        folder.mkdir(parents=True, exist_ok=True)
        self.names = [f"s{number}" for number in range(len(machines))]
        self.addresses = {name: free_address() for name in self.names}
        self.provider_address = free_address()
        self.coordinators = Coordinators(folder / "coordinator", (), replicas=1, flags=rebalance)
        catalogue = folder / "catalogue.yaml"
        catalogue.write_text(yaml.safe_dump(_catalogue(machines, offerings)))
        provider = ("fake-provider", "--log-format", "json", "--durations", "instant", "--catalogue", str(catalogue))
        self.provider = Program("provider", [*BIGFLEET, *provider, "--listen", self.provider_address], folder)
        self.shards = {name: self._shard(folder, name, settings or {}, environment) for name in self.names}

    @property
    def coordinator(self) -> Program:
        return self.coordinators.programs[0]

    def start(self) -> None:
        self.provider.start()
        self.coordinators.start()
        self.provider.told("provider ready")
        for shard in self.shards.values():
            shard.start()
        for shard in self.shards.values():
            shard.told("listening")

    def stop(self) -> None:
        for program in (*self.shards.values(), self.coordinator, self.provider):
            if program.alive:
                program.kill()

    async def divide(self, seconds: float = 120.0) -> None:
        """Give every shard its zone, and wait until all of them act on exactly that."""
        wanted = set(self.names)
        await until(lambda: self._registered(wanted), seconds=seconds, what="shards register")
        async with channel(self.coordinators.addresses[0]) as opened:
            stub: Any = coordinator_pb2_grpc.CoordinatorStub(opened)
            for number, name in enumerate(self.names):
                # Moved, because new shards may have got a slice of the zones already.
                request = pb.MoveDomainRequest(topology_key=ZONE_LABEL, topology_value=f"z{number}", to_shard_id=name)
                await stub.MoveDomain(request)

    async def reports(self) -> dict[str, pb.ShardReportSnapshot]:
        """What each shard told last; nothing while nobody leads yet."""
        async with channel(self.coordinators.addresses[0]) as opened:
            stub: Any = coordinator_pb2_grpc.CoordinatorStub(opened)
            try:
                found = await stub.ListShardReports(pb.ListShardReportsRequest())
            except grpc.aio.AioRpcError as error:
                if error.code() not in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNAVAILABLE):
                    raise
                return {}
        return {each.shard_id: each for each in found.reports}

    async def owning(self) -> dict[str, int]:
        """Machines that are each shard's."""
        return {name: each.summary.total_machines for name, each in (await self.reports()).items()}

    async def _registered(self, wanted: set[str]) -> bool:
        return set(await self.reports()) >= wanted

    def _shard(self, folder: Path, name: str, settings: Mapping[str, Any], environment: Mapping[str, str]) -> Program:
        given = {
            **QUICK,
            "id": name,
            "provider": [f"p={self.provider_address}"],
            "coordinator-addr": self.coordinators.addresses[0],
            "data-dir": str(folder / name),
            "listen": self.addresses[name],
            "metrics-addr": "0",
            **settings,
        }
        path = folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(given))
        return Program(name, [*BIGFLEET, "shard", "--log-format", "json", "--config", str(path)], folder, environment)


def _catalogue(machines: Sequence[int], more: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    size = {"cpu": "4", "memory": "16Gi"}
    own = [
        {
            "name": f"in-z{number}",
            "instance_type": "m.four",
            "capacity_type": "bare-metal",
            "count": count,
            "zones": [f"z{number}"],
            "hosts": count,
        }
        for number, count in enumerate(machines)
        if count
    ]
    offered = [{"price_per_hour": 0.2, "resources": size, **each} for each in (*own, *more)]
    return {"provider": "p", "offerings": offered}
