"""The coordinator over real sockets: registration, the published codes, instructions, tables and listings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from bigfleet.transport import authority
from bigfleet.transport.certificates import TlsFiles
from bigfleet.transport.identity import ADMIN, READONLY, shard
from bigfleet.wire import capacity_pb2
from bigfleet.wire import coordinator_pb2 as pb
from tests.strategies.coordinator_process import OURS, Ack, Peer, code, coordinator

ZONE = "topology.kubernetes.io/zone"
S = grpc.StatusCode


def assignment(value: str, shard_id: str, key: str = ZONE) -> pb.AssignDomainRequest:
    return pb.AssignDomainRequest(topology_key=key, topology_value=value, shard_id=shard_id)


async def test_an_unknown_shard_registers_by_reporting_and_keeps_its_registration(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as asked:
        peer = Peer(asked.stub, "shard-0", "h0:7780")
        first = await peer.report(summary=pb.ShardSummary(total_machines=7))
        assert first.acknowledged and first.coordinator_term == 1
        (known,) = (await asked.stub.ListShards(pb.ListShardsRequest())).shards
        assert (known.shard_id, known.address) == ("shard-0", "h0:7780")
        await peer.report()
        (later,) = (await asked.stub.ListShards(pb.ListShardsRequest())).shards
        assert later.registered_at_unix_ns == known.registered_at_unix_ns
        assert later.last_heartbeat_unix_ns > known.last_heartbeat_unix_ns


async def test_a_reference_shard_is_told_its_domains_one_by_one_and_obeys(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as asked:
        peer = Peer(asked.stub, "old")
        await peer.obey()
        await asked.stub.AssignDomain(assignment("a", "old"))
        await asked.stub.AssignDomain(assignment("b", "old"))
        answer = await peer.obey()
        assert not answer.HasField("ownership") and not answer.HasField("rails") and not answer.bindings
        assert peer.domains == {(ZONE, "a"), (ZONE, "b")}
        sequences = [each.sequence_number for each in answer.instructions]
        assert sequences == sorted(sequences) and len(sequences) == 2
        assert not (await peer.obey()).instructions
        await asked.stub.UnassignDomain(pb.UnassignDomainRequest(topology_key=ZONE, topology_value="a"))
        await peer.obey()
        assert peer.domains == {(ZONE, "b")}
        assert not (await peer.obey()).instructions


async def test_a_restarted_reference_shard_is_told_everything_again(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as asked:
        peer = Peer(asked.stub, "old")
        await peer.obey()
        await asked.stub.AssignDomain(assignment("a", "old"))
        await peer.obey()
        await peer.obey()
        again = Peer(asked.stub, "old", epoch=2)
        await again.obey()
        assert again.domains == {(ZONE, "a")}


async def test_an_instruction_comes_again_until_it_is_acknowledged_and_rests_when_it_failed(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as asked:
        peer = Peer(asked.stub, "old")
        await peer.report()
        await asked.stub.AssignDomain(assignment("a", "old"))
        (first,) = (await peer.report()).instructions
        (second,) = (await peer.report()).instructions
        assert first == second
        peer.ack(first.instruction_id, outcome=Ack.OUTCOME_FAILED, reason="disk full")
        assert not (await peer.report()).instructions
        assert asked.process.replica.tenure is not None
        assert asked.process.replica.tenure.leader.instructions.waiting(
            asked.tables, asked.tables.shards["old"], 2**62
        ), "a failed instruction is not forgotten"


async def test_domains_are_given_and_refused_with_the_published_codes(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as asked:
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await asked.stub.AssignDomain(assignment("a", "s0"))
        assert code(unknown) is S.NOT_FOUND and unknown.value.details() == "coordinator: shard not found: s0"
        for name in ("s0", "s1"):
            await Peer(asked.stub, name).report()
        await asked.stub.AssignDomain(assignment("a", "s0"))
        await asked.stub.AssignDomain(assignment("a", "s0"))
        with pytest.raises(grpc.aio.AioRpcError) as taken:
            await asked.stub.AssignDomain(assignment("a", "s1"))
        assert code(taken) is S.ALREADY_EXISTS and "currently on s0, asked s1" in taken.value.details()
        with pytest.raises(grpc.aio.AioRpcError) as nothing:
            await asked.stub.AssignDomain(assignment("", "s1"))
        assert code(nothing) is S.INVALID_ARGUMENT
        assert nothing.value.details() == "topology_key, topology_value, shard_id all required"
        moved = await asked.stub.MoveDomain(
            pb.MoveDomainRequest(topology_key=ZONE, topology_value="a", to_shard_id="s1")
        )
        assert moved.from_shard_id == "s0"
        await asked.stub.AssignDomain(assignment("0", "s0"))
        listed = (await asked.stub.ListDomainAssignments(pb.ListDomainAssignmentsRequest())).assignments
        assert [(each.shard_id, each.topology_value) for each in listed] == [("s0", "0"), ("s1", "a")]
        await asked.stub.RemoveShard(pb.RemoveShardRequest(shard_id="s1"))
        with pytest.raises(grpc.aio.AioRpcError) as gone:
            await asked.stub.RemoveShard(pb.RemoveShardRequest(shard_id="s1"))
        assert code(gone) is S.NOT_FOUND
        listed = (await asked.stub.ListDomainAssignments(pb.ListDomainAssignmentsRequest())).assignments
        assert [each.topology_value for each in listed] == ["0"]
        with pytest.raises(grpc.aio.AioRpcError) as nameless:
            await Peer(asked.stub, "").report()
        assert code(nameless) is S.INVALID_ARGUMENT and nameless.value.details() == "shard_id required"
        with pytest.raises(grpc.aio.AioRpcError) as joining:
            await asked.stub.JoinRaftCluster(pb.JoinRaftClusterRequest(node_id="n", raft_address="h:1"))
        assert code(joining) is S.FAILED_PRECONDITION


async def test_a_domain_is_nobodys_until_its_old_owner_has_confirmed(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as asked:
        old, new = (Peer(asked.stub, name, capabilities=OURS) for name in ("s0", "s1"))
        for peer in (old, new):
            await peer.obey()
        await asked.stub.AssignDomain(assignment("a", "s1"))
        told = await new.obey()
        assert [each.shard_id for each in told.ownership.domains] == [""], "s0 is the default owner and may still act"
        await old.obey()
        assert not (await new.obey()).HasField("ownership")
        await old.obey()
        told = await new.obey()
        assert [each.shard_id for each in told.ownership.domains] == ["s1"]
        assert told.ownership.default_shard_id == "s0"


async def test_a_shard_gets_its_table_only_when_it_has_another(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as asked:
        peer = Peer(asked.stub, "s0", capabilities=OURS)
        assert (await peer.obey()).HasField("ownership")
        assert not (await peer.obey()).HasField("ownership")
        await asked.stub.AssignDomain(assignment("a", "s0"))
        table = (await peer.obey()).ownership
        assert [(each.topology_value, each.shard_id) for each in table.domains] == [("a", "s0")]
        assert table.coordinator_term == 1 and table.keys[-1] == ZONE


async def test_reports_of_an_earlier_life_or_out_of_order_say_nothing(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as asked:
        peer = Peer(asked.stub, "s0", epoch=2)
        await peer.report(summary=pb.ShardSummary(total_machines=1))
        stale = Peer(asked.stub, "s0", epoch=1, cycle=50)
        assert not (await stale.report(summary=pb.ShardSummary(total_machines=99))).acknowledged
        (known,) = (await asked.stub.ListShardReports(pb.ListShardReportsRequest())).reports
        assert known.summary.total_machines == 1
        await peer.report()
        again = Peer(asked.stub, "s0", epoch=2)
        assert (await again.report()).acknowledged, "a shard that keeps no epoch begins anew with cycle 1"


async def test_a_report_that_brings_nothing_new_costs_no_commit(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as asked:
        peer = Peer(asked.stub, "s0", capabilities=OURS)
        await peer.obey(clusters=[pb.ReportedCluster(cluster_id="c", connected=True)])
        revision = asked.tables.meta.revision
        for _ in range(20):
            await peer.obey(
                clusters=[pb.ReportedCluster(cluster_id="c", connected=True)],
                shortfalls=[pb.Shortfall(priority=1)],
                summary=pb.ShardSummary(total_machines=3),
            )
        assert asked.tables.meta.revision == revision


async def test_a_new_shard_gets_its_share_of_the_zones_that_hold_free_machines_only(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as asked:
        first, second = (Peer(asked.stub, name, capabilities=OURS) for name in ("s0", "s1"))
        summary = pb.ShardSummary(total_machines=8, per_zone_counts={"a": 2, "b": 2, "c": 2, "busy": 2})
        for zone in ("a", "b", "c"):
            summary.free_cells.add(instance_type="t", zone=zone, state=3, count=2)
        await first.obey(summary=summary)
        await second.obey()
        tenure = asked.process.replica.tenure
        assert tenure is not None
        for _ in range(2):
            await tenure.plan(tenure.leader.heard[1].at)
        listed = (await asked.stub.ListDomainAssignments(pb.ListDomainAssignmentsRequest())).assignments
        assert [(each.shard_id, each.topology_value) for each in listed] == [("s1", "a")], (
            "once, and its share of three"
        )


async def test_an_empty_report_clears_the_shortfalls(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as asked:
        peer = Peer(asked.stub, "s0")
        await peer.report(shortfalls=[pb.Shortfall(priority=5)])
        (known,) = (await asked.stub.ListShardReports(pb.ListShardReportsRequest(shard_id="s0"))).reports
        assert [each.priority for each in known.shortfalls] == [5]
        await peer.report()
        (known,) = (await asked.stub.ListShardReports(pb.ListShardReportsRequest())).reports
        assert not known.shortfalls
        assert not (await asked.stub.ListShardReports(pb.ListShardReportsRequest(shard_id="x"))).reports


async def test_a_cluster_is_bound_where_its_operator_arrived_or_where_it_says_it_belongs(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as asked:
        here, there = Peer(asked.stub, "s0", "h0:1"), Peer(asked.stub, "s1", "h1:1")
        await there.report()
        cluster = pb.ReportedCluster(cluster_id="c", connected=True)
        claimed = pb.ReportedCluster(cluster_id="d", connected=True, claimed_shard_id="s1")
        answer = await here.report(clusters=[cluster, claimed])
        assert [(each.cluster_id, each.shard_id, each.shard_address) for each in answer.bindings] == [
            ("c", "s0", "h0:1"),
            ("d", "s1", "h1:1"),
        ]
        answer = await there.report(clusters=[cluster])
        assert [each.shard_id for each in answer.bindings] == ["s0"], "bound once, it stays"
        moved = await asked.stub.MoveCluster(pb.MoveClusterRequest(cluster_id="c", to_shard_id="s1"))
        assert moved.binding.shard_id == "s1"
        listed = (await asked.stub.ListClusters(pb.ListClustersRequest())).clusters
        assert [(each.binding.cluster_id, list(each.reporting_shard_ids)) for each in listed] == [
            ("c", ["s0", "s1"]),
            ("d", ["s0"]),
        ]


async def test_an_operator_that_follows_referrals_goes_to_the_least_loaded_shard(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as asked:
        busy, free = Peer(asked.stub, "s0"), Peer(asked.stub, "s1")
        await free.report()
        await busy.report(clusters=[pb.ReportedCluster(cluster_id="first", connected=True)])
        follows = pb.ReportedCluster(cluster_id="second", connected=True, follows_referrals=True)
        stays = pb.ReportedCluster(cluster_id="third", connected=True)
        answer = await busy.report(clusters=[follows, stays])
        assert {each.cluster_id: each.shard_id for each in answer.bindings} == {"second": "s1", "third": "s0"}


async def test_rails_of_fleet_and_shard_reach_the_shard_and_the_stricter_holds(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as asked:
        peer = Peer(asked.stub, "s0", capabilities=OURS)
        assert not (await peer.report()).HasField("rails")
        await asked.stub.SetRails(capacity_pb2.SetRailsRequest(rails=capacity_pb2.Rails(dry_run=True, reason="look")))
        set_one = capacity_pb2.SetRailsRequest(
            shard_id="s0", rails=capacity_pb2.Rails(actuation_paused=True, reason="incident")
        )
        effective = (await asked.stub.SetRails(set_one)).effective
        assert effective.actuation_paused and effective.dry_run and effective.reason == "incident"
        rails = (await peer.report()).rails
        assert rails.actuation_paused and rails.dry_run and rails.set_at_unix_nanos
        for shard_id in ("", "s0"):
            await asked.stub.SetRails(capacity_pb2.SetRailsRequest(shard_id=shard_id, rails=capacity_pb2.Rails()))
        answer = await peer.report()
        assert answer.HasField("rails") and not answer.rails.actuation_paused and not answer.rails.dry_run


async def test_quotas_and_providers_are_kept_listed_and_delivered_on_request(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as asked:
        peer = Peer(asked.stub, "s0", capabilities=("provider-registry",))
        await peer.report()
        for name in ("p1", "p0"):
            entry = pb.ProviderEntry(name=name, address=f"{name}:9000", region="eu")
            await asked.stub.UpsertProvider(pb.UpsertProviderRequest(provider=entry))
        assert [each.name for each in (await peer.report()).providers] == ["p0", "p1"]
        quota = pb.QuotaAllocation(provider="p0", region="eu", per_shard={"s0": 3})
        quota.slots.add(shard_id="s0", machine_ids=["m1", "m0"])
        await asked.stub.SetQuota(pb.SetQuotaRequest(allocation=quota))
        (listed,) = (await asked.stub.ListQuotas(pb.ListQuotasRequest())).allocations
        assert dict(listed.per_shard) == {"s0": 3} and list(listed.slots[0].machine_ids) == ["m0", "m1"]
        await asked.stub.RemoveProvider(pb.RemoveProviderRequest(name="p1"))
        with pytest.raises(grpc.aio.AioRpcError) as gone:
            await asked.stub.RemoveProvider(pb.RemoveProviderRequest(name="p1"))
        assert code(gone) is S.NOT_FOUND


async def test_everything_survives_a_restart_with_a_higher_term(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as asked:
        await Peer(asked.stub, "s0").report(clusters=[pb.ReportedCluster(cluster_id="c", connected=True)])
        await asked.stub.AssignDomain(assignment("a", "s0"))
        rows = asked.tables.rows()
    async with coordinator(tmp_path) as asked:
        assert asked.tables.rows() == rows
        assert (await Peer(asked.stub, "s0").report()).coordinator_term == 2


async def test_a_shard_that_has_seen_a_higher_term_lifts_ours_above_it(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as asked:
        assert (await Peer(asked.stub, "s0", term=41).report()).coordinator_term == 42
    async with coordinator(tmp_path) as asked:
        assert (await Peer(asked.stub, "s0").report()).coordinator_term == 43


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pki")
    authority.create_authority(folder)
    for identity in (ADMIN, READONLY, shard("s0"), shard("server")):
        authority.issue(folder, identity, addresses=["127.0.0.1"])
    return folder


def files(pki: Path, stem: str) -> TlsFiles:
    return TlsFiles(str(pki / f"{stem}.crt"), str(pki / f"{stem}.key"), str(pki / "ca.crt"))


async def refusal(call: Any) -> grpc.StatusCode | None:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return None


async def test_a_certificate_may_do_what_its_role_may_and_nothing_else(tmp_path: Path, pki: Path) -> None:
    server = files(pki, "admin")
    async with coordinator(tmp_path, tls=server, caller=files(pki, "shard-s0")) as asked:
        assert (await Peer(asked.stub, "s0").report()).acknowledged
        assert await refusal(Peer(asked.stub, "s1").report()) is S.PERMISSION_DENIED
        assert await refusal(asked.stub.ListShards(pb.ListShardsRequest())) is S.PERMISSION_DENIED
        assert await refusal(asked.stub.AssignDomain(assignment("a", "s0"))) is S.PERMISSION_DENIED
    async with coordinator(tmp_path, tls=server, caller=files(pki, "readonly")) as asked:
        assert await refusal(asked.stub.ListShards(pb.ListShardsRequest())) is None
        assert await refusal(asked.stub.ListShardReports(pb.ListShardReportsRequest())) is None
        # Refused before arguments are looked at.
        assert await refusal(asked.stub.AssignDomain(pb.AssignDomainRequest())) is S.PERMISSION_DENIED
        assert await refusal(asked.stub.RemoveShard(pb.RemoveShardRequest())) is S.PERMISSION_DENIED
    async with coordinator(tmp_path, tls=server, caller=server) as asked:
        assert await refusal(Peer(asked.stub, "s0").report()) is S.PERMISSION_DENIED
        assert await refusal(asked.stub.AssignDomain(assignment("a", "s0"))) is None
