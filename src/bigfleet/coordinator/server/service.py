"""The Coordinator service: who may call what, arguments, and status codes; everything else is the tenure's.

Order of checks, as published: leader, identity, arguments (for reports: leader, argument, identity). A follower names
the leader in the trailer `bigfleet-redirect`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import structlog

from bigfleet.coordinator.core import commands as do
from bigfleet.coordinator.core.commands import Code, Refused
from bigfleet.coordinator.core.ownership import rails_of
from bigfleet.coordinator.core.records import Provider, Rails
from bigfleet.coordinator.server import listings
from bigfleet.coordinator.server.answers import providers_to_wire, rails_to_wire
from bigfleet.coordinator.snapshots.document import Snapshot, verify
from bigfleet.coordinator.stores.store import StoreError
from bigfleet.model.names import LEADER_TERM, PENDING_INSTRUCTIONS, REDIRECT
from bigfleet.transport.identity import ADMIN, READONLY, Identity, IdentityError, Kind, peer_identity
from bigfleet.wire import capacity_pb2, coordinator_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterable

    from bigfleet.coordinator.core.state import Applied
    from bigfleet.coordinator.server.replica import Replica
    from bigfleet.coordinator.server.tenure import Tenure

log = structlog.get_logger(__name__)

CHUNK = 1 << 20
MAX_SNAPSHOT = 1 << 30
_STATUS = {
    Code.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    Code.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Code.EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    Code.CONFLICT: grpc.StatusCode.FAILED_PRECONDITION,
}
Context = Any


class CoordinatorService:
    """One method per call, named as on the wire."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    async def ReportShard(  # noqa: N802
        self, request: tuple[bytes, coordinator_pb2.ShardReport], context: Context
    ) -> bytes:
        begin = time.perf_counter()
        raw, report = request
        tenure = await self._leading(context)
        if not report.shard_id:
            await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, "shard_id required")
        await self._require(context, "ReportShard", "shard", _shard_identity(report.shard_id))
        try:
            answer = await tenure.report(raw, report, time.time_ns())
        except (StoreError, Refused) as error:
            self._replica.metrics.count("reports_total", "failed")
            await _abort(context, grpc.StatusCode.UNAVAILABLE, f"coordinator: register shard: {error}")
        # Between the commit and now somebody else may have been elected; then this answer is not ours to give.
        await self._leading(context)
        self._replica.metrics.count("reports_total", "ok")
        self._replica.metrics.observe("report_seconds", time.perf_counter() - begin)
        return answer

    async def AssignDomain(self, request: coordinator_pb2.AssignDomainRequest, context: Context) -> Any:  # noqa: N802
        tenure = await self._as_admin(context, "AssignDomain")
        if not (request.topology_key and request.topology_value and request.shard_id):
            await _invalid(context, "topology_key, topology_value, shard_id all required")
        command = do.AssignDomain(request.topology_key, request.topology_value, request.shard_id)
        await self._submit(context, tenure, "AssignDomain", command)
        return coordinator_pb2.AssignDomainResponse()

    async def UnassignDomain(self, request: coordinator_pb2.UnassignDomainRequest, context: Context) -> Any:  # noqa: N802
        tenure = await self._as_admin(context, "UnassignDomain")
        if not (request.topology_key and request.topology_value):
            await _invalid(context, "topology_key and topology_value required")
        command = do.UnassignDomain(request.topology_key, request.topology_value)
        await self._submit(context, tenure, "UnassignDomain", command)
        return coordinator_pb2.UnassignDomainResponse()

    async def MoveDomain(self, request: coordinator_pb2.MoveDomainRequest, context: Context) -> Any:  # noqa: N802
        tenure = await self._as_admin(context, "MoveDomain")
        if not (request.topology_key and request.topology_value and request.to_shard_id):
            await _invalid(context, "topology_key, topology_value, to_shard_id all required")
        command = do.MoveDomain(request.topology_key, request.topology_value, request.to_shard_id)
        applied = await self._submit(context, tenure, "MoveDomain", command)
        return coordinator_pb2.MoveDomainResponse(
            from_shard_id=applied.answer, ownership_version=tenure.state.tables.meta.fleet_version
        )

    async def RemoveShard(self, request: coordinator_pb2.RemoveShardRequest, context: Context) -> Any:  # noqa: N802
        tenure = await self._as_admin(context, "RemoveShard")
        if not request.shard_id:
            await _invalid(context, "shard_id required")
        await self._submit(context, tenure, "RemoveShard", do.RemoveShard(request.shard_id))
        return coordinator_pb2.RemoveShardResponse()

    async def MoveCluster(self, request: coordinator_pb2.MoveClusterRequest, context: Context) -> Any:  # noqa: N802
        tenure = await self._as_admin(context, "MoveCluster")
        if not (request.cluster_id and request.to_shard_id):
            await _invalid(context, "cluster_id and to_shard_id required")
        command = do.MoveCluster(request.cluster_id, request.to_shard_id, time.time_ns())
        await self._submit(context, tenure, "MoveCluster", command)
        made = coordinator_pb2.MoveClusterResponse()
        made.binding.CopyFrom(listings.binding(tenure.state.tables, request.cluster_id))
        return made

    async def SetQuota(self, request: coordinator_pb2.SetQuotaRequest, context: Context) -> Any:  # noqa: N802
        tenure = await self._as_admin(context, "SetQuota")
        wanted = request.allocation
        slots = {each.shard_id: tuple(sorted(each.machine_ids)) for each in wanted.slots}
        shares = tuple(
            (shard, wanted.per_shard.get(shard, len(slots.get(shard, ()))), slots.get(shard, ()))
            for shard in sorted({*wanted.per_shard, *slots})
        )
        await self._submit(context, tenure, "SetQuota", do.SetQuota(wanted.provider, wanted.region, shares))
        return coordinator_pb2.SetQuotaResponse()

    async def UpsertProvider(self, request: coordinator_pb2.UpsertProviderRequest, context: Context) -> Any:  # noqa: N802
        tenure = await self._as_admin(context, "UpsertProvider")
        given = request.provider
        command = do.UpsertProvider(Provider(given.name, given.address, given.region))
        await self._submit(context, tenure, "UpsertProvider", command)
        return coordinator_pb2.UpsertProviderResponse()

    async def RemoveProvider(self, request: coordinator_pb2.RemoveProviderRequest, context: Context) -> Any:  # noqa: N802
        tenure = await self._as_admin(context, "RemoveProvider")
        await self._submit(context, tenure, "RemoveProvider", do.RemoveProvider(request.name))
        return coordinator_pb2.RemoveProviderResponse()

    async def SetRails(self, request: capacity_pb2.SetRailsRequest, context: Context) -> Any:  # noqa: N802
        """Set the switches, or with none given only tell them."""
        tenure = await self._as_admin(context, "SetRails")
        if request.HasField("rails"):
            caller = _caller(context)
            wanted = request.rails
            rails = Rails(
                shard=request.shard_id,
                paused=wanted.actuation_paused,
                dry_run=wanted.dry_run,
                reason=wanted.reason,
                set_by=caller or wanted.set_by or "coordinator",
                set_at=time.time_ns(),
            )
            await self._submit(context, tenure, "SetRails", do.SetRails(rails))
        tables = tenure.state.tables
        shard = tables.shards.get(request.shard_id)
        effective = rails_of(tables, shard) if shard is not None else tables.rails.get("")
        return capacity_pb2.SetRailsResponse(effective=rails_to_wire(effective or Rails(request.shard_id)))

    async def JoinRaftCluster(self, request: coordinator_pb2.JoinRaftClusterRequest, context: Context) -> Any:  # noqa: N802
        await self._as_admin(context, "JoinRaftCluster")
        if not (request.node_id and request.raft_address):
            await _invalid(context, "node_id and raft_address required")
        await _abort(
            context,
            grpc.StatusCode.FAILED_PRECONDITION,
            "JoinRaftCluster: replicas do not join each other; start them with the same --etcd-endpoints",
        )

    async def ListShards(self, _: Any, context: Context) -> Any:  # noqa: N802
        tenure = await self._as_reader(context, "ListShards")
        return listings.shards(tenure)

    async def ListDomainAssignments(self, _: Any, context: Context) -> Any:  # noqa: N802
        tenure = await self._as_reader(context, "ListDomainAssignments")
        return await listings.domains(tenure.state.tables)

    async def ListQuotas(self, _: Any, context: Context) -> Any:  # noqa: N802
        tenure = await self._as_reader(context, "ListQuotas")
        return listings.quotas(tenure.state.tables)

    async def ListProviders(self, _: Any, context: Context) -> Any:  # noqa: N802
        tenure = await self._as_reader(context, "ListProviders")
        return coordinator_pb2.ListProvidersResponse(providers=providers_to_wire(tenure.state.tables))

    async def ListShardReports(self, request: coordinator_pb2.ListShardReportsRequest, context: Context) -> Any:  # noqa: N802
        tenure = await self._as_reader(context, "ListShardReports")
        return listings.reports(tenure, request.shard_id)

    async def ListClusters(self, request: coordinator_pb2.ListClustersRequest, context: Context) -> Any:  # noqa: N802
        tenure = await self._as_reader(context, "ListClusters")
        return listings.clusters(tenure, request.shard_id)

    async def SnapshotSave(self, _: Any, context: Context) -> AsyncIterator[coordinator_pb2.SnapshotSaveChunk]:  # noqa: N802
        tenure = await self._as_admin(context, "SnapshotSave")
        try:
            snapshot = await tenure.snapshot()
        except StoreError as error:
            await _abort(context, grpc.StatusCode.UNAVAILABLE, f"SnapshotSave: {error}")
        yield coordinator_pb2.SnapshotSaveChunk(meta_json=snapshot.meta)
        for begin in range(0, len(snapshot.data), CHUNK):
            yield coordinator_pb2.SnapshotSaveChunk(data=snapshot.data[begin : begin + CHUNK])

    async def SnapshotVerify(self, chunks: AsyncIterable[Any], context: Context) -> Any:  # noqa: N802
        await self._as_reader(context, "SnapshotVerify")
        meta, data = b"", bytearray()
        async for chunk in chunks:
            if chunk.WhichOneof("payload") == "meta_json":
                meta = chunk.meta_json
            data += chunk.data
            if len(data) > MAX_SNAPSHOT:
                await _invalid(context, f"a snapshot of more than {MAX_SNAPSHOT} bytes is not looked at")
        verdict = await asyncio.to_thread(verify, Snapshot(meta, bytes(data)))
        tables = verdict.state.tables
        return coordinator_pb2.SnapshotVerifyResponse(
            valid=not verdict.problems,
            problems=verdict.problems,
            revision=verdict.revision,
            coordinator_term=verdict.term,
            shards=len(tables.shards),
            clusters=len(tables.clusters),
            domains=len(tables.domains),
        )

    async def _leading(self, context: Context) -> Tenure:
        tenure = self._replica.tenure
        if tenure is None or not self._replica.store.leading():
            leader = self._replica.leader_elsewhere()
            context.set_trailing_metadata(((REDIRECT, leader),) if leader else ())
            await _abort(context, grpc.StatusCode.FAILED_PRECONDITION, "coordinator: not leader")
        return tenure

    async def _as_admin(self, context: Context, rpc: str) -> Tenure:
        tenure = await self._leading(context)
        await self._require(context, rpc, "admin", ADMIN)
        return tenure

    async def _as_reader(self, context: Context, rpc: str) -> Tenure:
        tenure = await self._leading(context)
        await self._require(context, rpc, "read", READONLY, ADMIN)
        try:
            await tenure.committer.settled()
        except StoreError as error:
            await _abort(context, grpc.StatusCode.UNAVAILABLE, f"{rpc}: {error}")
        pending = f"{sum(tenure.pending.values()):.0f}"
        context.set_trailing_metadata(((LEADER_TERM, str(tenure.term)), (PENDING_INSTRUCTIONS, pending)))
        return tenure

    async def _require(self, context: Context, rpc: str, role: str, *allowed: Identity | None) -> None:
        try:
            presented = peer_identity(context)
            problem = "" if presented is None or presented in allowed else f"presented {presented}"
        except IdentityError as error:
            problem = str(error)
        if problem:
            wanted = " or ".join(str(each) for each in allowed if each is not None) or "a shard's own identity"
            self._replica.metrics.count("identity_rejected_total")
            log.error(f"coordinator rejected {role} identity", rpc=rpc, required=wanted, err=problem)
            await _abort(context, grpc.StatusCode.PERMISSION_DENIED, f"{rpc} requires {wanted}: {problem}")

    async def _submit(self, context: Context, tenure: Tenure, rpc: str, command: do.Command) -> Applied:
        try:
            applied = await tenure.submit(command)
        except Refused as refusal:
            await _abort(context, _STATUS[refusal.code], str(refusal))
        except StoreError as error:
            await _abort(context, grpc.StatusCode.UNAVAILABLE, f"{rpc}: {error}")
        log.info("command committed", rpc=rpc, revision=tenure.state.revision, by=_caller(context) or "plaintext")
        return applied


def _shard_identity(shard: str) -> Identity | None:
    try:
        return Identity(Kind.SHARD, shard)
    except IdentityError:
        return None


def _caller(context: Context) -> str:
    identity = peer_identity(context)
    return str(identity) if identity is not None else ""


async def _invalid(context: Context, text: str) -> NoReturn:
    await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, text)


async def _abort(context: Context, code: grpc.StatusCode, text: str) -> NoReturn:
    await context.abort(code, text)
    raise AssertionError("an aborted call does not go on")
