"""A shard end to end over real sockets: operators, engine, provider."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import grpc
import pytest

from bigfleet.shard.contract import events as ev
from bigfleet.transport import channel
from bigfleet.wire import (
    capacity_pb2,
    coordinator_pb2,
    provider_pb2,
    shard_pb2_grpc,
    shardread_pb2,
    shardread_pb2_grpc,
)
from tests.strategies.operator_client import ALL_CAPABILITIES, REFERENCE, Row, operator
from tests.strategies.scripted_coordinator import scripted_coordinator
from tests.strategies.shard_process import Running, offering, provider, shard, small_fleet
from tools.waiting import until

UNIT = {"cpu": "2", "memory": "4Gi"}
IDLE = provider_pb2.MACHINE_STATE_IDLE
DRAINING = provider_pb2.MACHINE_STATE_DRAINING
BOTH = pytest.mark.parametrize("capabilities", [REFERENCE, ALL_CAPABILITIES], ids=["reference", "ours"])


def rows(pods: int, priority: int = 100) -> list[Row]:
    return [Row(pods=pods, unit=UNIT, priority=priority)]


@BOTH
async def test_four_idle_machines_and_a_need_of_four_end_configured(
    tmp_path: Path, capabilities: frozenset[str]
) -> None:
    async with small_fleet(tmp_path) as running, operator(running.address, "c-1", capabilities=capabilities) as cluster:
        cluster.want(rows(4))
        await cluster.send_rollup()
        await cluster.until(lambda heard: len(heard.configured) == 4)
        assert len(cluster.heard.bootstrap_requests) == 4
        assert len({request.request_id for request in cluster.heard.bootstrap_requests}) == 4
        assert running.states() == {"Configured": 4}


@BOTH
async def test_withdrawn_demand_drains_every_machine_back_to_idle(tmp_path: Path, capabilities: frozenset[str]) -> None:
    async with small_fleet(tmp_path) as running, operator(running.address, "c-1", capabilities=capabilities) as cluster:
        cluster.want(rows(4))
        await cluster.send_rollup()
        await cluster.until(lambda heard: len(heard.configured) == 4)
        cluster.want([])
        await cluster.send_rollup()
        await cluster.until(lambda heard: len(heard.in_state(IDLE)) == 4)
        assert len(cluster.heard.reclaims) == 4
        for machine in cluster.heard.in_state(IDLE):
            told = [state for name, state in cluster.heard.states if name == machine]
            assert told.index(DRAINING) < len(told) - 1 and told[-1] == IDLE
        await running.until(lambda _: running.states() == {"Idle": 4})


async def test_more_demand_than_supply_configures_what_there_is_and_stays_there(tmp_path: Path) -> None:
    async with small_fleet(tmp_path, 2) as running, operator(running.address, "c-1") as cluster:
        cluster.want(rows(8))
        await cluster.send_rollup()
        await cluster.until(lambda heard: len(heard.configured) == 2)
        cycle = running.shard.core.published.cycle
        await running.until(lambda process: process.core.published.cycle >= cycle + 5)
        assert running.states() == {"Configured": 2}
        assert len(cluster.heard.bootstrap_requests) == 2
        assert len(running.shard.core.published.shortfalls) == 1


async def test_a_higher_priority_takes_machines_and_the_victims_operator_hears_of_each(tmp_path: Path) -> None:
    async with (
        small_fleet(tmp_path) as running,
        operator(running.address, "low") as low,
        operator(running.address, "high") as high,
    ):
        low.want(rows(4, 100))
        await low.send_rollup()
        await low.until(lambda heard: len(heard.configured) == 4)
        high.want(rows(4, 1_000_000))
        await high.send_rollup()
        await high.until(lambda heard: len(heard.configured) == 4)
        assert len(low.heard.reclaims) == 4
        assert {order.preemptor_priority for order in low.heard.reclaims} == {1_000_000}
        assert {record.cluster for record in running.shard.core.state.fleet.all()} == {"high"}


async def test_a_cluster_is_told_what_it_could_get_and_at_which_price(tmp_path: Path) -> None:
    async with small_fleet(tmp_path) as running, operator(running.address, "c-1") as cluster:
        cluster.want(rows(1))
        await cluster.send_rollup()
        await cluster.until(lambda heard: any(hint.available_count >= 1 for hint in heard.capacity.values()))
        (key, hint), *_ = cluster.heard.capacity.items()
        assert key.startswith("available:") and hint.cost_per_hour == pytest.approx(0.1)


async def test_a_reconnecting_operator_is_told_its_own_machines_and_where_they_end(tmp_path: Path) -> None:
    async with small_fleet(tmp_path) as running:
        async with operator(running.address, "c-1") as first, operator(running.address, "c-2") as other:
            for cluster in (first, other):
                cluster.want(rows(2))
                await cluster.send_rollup()
            await first.until(lambda heard: len(heard.configured) == 2)
            await other.until(lambda heard: len(heard.configured) == 2)
        async with operator(running.address, "c-1") as again:
            await again.until(lambda heard: bool(heard.resyncs))
            assert set(again.heard.resyncs[0]) == set(first.heard.configured)
            assert again.heard.configured == first.heard.configured


async def test_a_rollup_for_another_cluster_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async with (
        small_fleet(tmp_path) as running,
        operator(running.address, "mallory") as mallory,
        operator(running.address, "victim") as victim,
    ):
        victim.want(rows(2))
        await victim.send_rollup()
        await victim.until(lambda heard: len(heard.configured) == 2)
        mallory.want([])
        await mallory.send_rollup(cluster="victim")
        await running.until(lambda process: process.metrics.value("rollups_rejected_total", ("mallory",)) == 1)
        assert len(victim.heard.configured) == 2 and not victim.heard.reclaims


async def test_an_operator_that_cannot_render_leaves_the_machine_idle_and_the_reason_visible(tmp_path: Path) -> None:
    async with (
        small_fleet(tmp_path, 1) as running,
        operator(running.address, "c-1", user_data=lambda request: "template is broken") as cluster,
    ):
        cluster.want(rows(1))
        await cluster.send_rollup()
        await running.until(lambda process: bool(process.core.published.blocked))
        await running.until(lambda _: running.states() == {"Idle": 1})
        stub = shardread_pb2_grpc.ShardReadStub(channel(running.address))

        async def reasons() -> list[int]:
            frames = stub.InspectNeeds(shardread_pb2.InspectNeedsRequest())
            return [frame.need.unmet_reason async for frame in frames if frame.HasField("need")]

        await until(reasons, lambda found: found[:1] == [shardread_pb2.UNMET_REASON_BOOTSTRAP_FAILED])


async def test_paused_decides_and_records_but_touches_nothing(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    async with (
        small_fleet(tmp_path, actuation_paused=True, audit_log=str(audit)) as running,
        operator(running.address, "c-1") as cluster,
    ):
        cluster.want(rows(4))
        await cluster.send_rollup()
        await running.until(lambda process: process.metrics.value("actions_suppressed_total", ("Bootstrap",)) >= 4)
        assert running.states() == {"Idle": 4}
        await running.until(lambda process: process.metrics.value("actuation_paused") == 1)
    outcomes = {json.loads(line)["outcome"] for line in audit.read_text().splitlines()}
    assert outcomes == {"suppressed"}


async def test_dry_run_tells_and_touches_nothing(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    async with (
        small_fleet(tmp_path, dry_run=True, audit_log=str(audit)) as running,
        operator(running.address, "c-1") as cluster,
    ):
        cluster.want(rows(4))
        await cluster.send_rollup()
        await running.until(lambda process: process.metrics.value("actions_dryrun_total", ("Bootstrap",)) >= 4)
        assert running.states() == {"Idle": 4}
        assert running.shard.metrics.value("actions_suppressed_total", ("Bootstrap",)) == 0
    assert {json.loads(line)["outcome"] for line in audit.read_text().splitlines()} == {"dryrun"}


async def test_an_executed_action_is_audited_with_its_reason_and_outcome(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    async with small_fleet(tmp_path, 1, audit_log=str(audit)) as running, operator(running.address, "c-1") as cluster:
        cluster.want(rows(1))
        await cluster.send_rollup()
        await cluster.until(lambda heard: len(heard.configured) == 1)
        await running.until(lambda _: audit.read_text().count("\n") == 1)
    line = json.loads(audit.read_text())
    assert (line["kind"], line["cluster"], line["reason"], line["outcome"]) == (
        "Bootstrap",
        "c-1",
        "phase1.idle",
        "success",
    )
    assert line["machine"] == "m-zone-a-0000" and line["cycle"] >= 1


async def test_rails_switched_by_an_admin_hold_at_once_and_survive_a_restart(tmp_path: Path) -> None:
    async with provider(offering("m", 2)) as served:
        async with shard(served, tmp_path) as running:
            answer = await shard_pb2_grpc.ShardAdminStub(channel(running.address)).SetRails(
                capacity_pb2.SetRailsRequest(rails=capacity_pb2.Rails(actuation_paused=True, reason="drill"))
            )
            assert answer.effective.actuation_paused and answer.effective.reason == "drill"
        async with shard(served, tmp_path) as running, operator(running.address, "c-1") as cluster:
            assert running.shard.core.published.epoch > 1
            cluster.want(rows(2))
            await cluster.send_rollup()
            await running.until(lambda process: process.metrics.value("actions_suppressed_total", ("Bootstrap",)) >= 2)
            await shard_pb2_grpc.ShardAdminStub(channel(running.address)).SetRails(
                capacity_pb2.SetRailsRequest(rails=capacity_pb2.Rails())
            )
            await cluster.until(lambda heard: len(heard.configured) == 2)


async def test_a_restarted_shard_knows_again_whose_machines_are_whose_and_what_for(tmp_path: Path) -> None:
    async with provider(offering("m", 2)) as served:
        async with shard(served, tmp_path) as running, operator(running.address, "c-1") as cluster:
            cluster.want([Row(pods=2, unit=UNIT, priority=7, interruption_bucket=5, reclamation_bucket=27)])
            await cluster.send_rollup()
            await cluster.until(lambda heard: len(heard.configured) == 2)
            before = {record.key: record.stamp for record in running.shard.core.state.fleet.all()}
        async with shard(served, tmp_path) as running:
            after = {record.key: record.stamp for record in running.shard.core.state.fleet.all()}
            assert after == before
            (stamp,) = set(after.values())
            assert (stamp.priority, stamp.interruption_dollars, stamp.reclamation_dollars) == (7, 4.0, float("inf"))
            assert {record.cluster for record in running.shard.core.state.fleet.all()} == {"c-1"}
            # No roll-up yet: nothing may be taken from a cluster that has not spoken.
            cycle = running.shard.core.published.cycle
            await running.until(lambda process: process.core.published.cycle >= cycle + 3)
            assert running.states() == {"Configured": 2}


async def test_a_shard_is_ready_only_once_every_provider_has_listed(tmp_path: Path) -> None:
    async with (
        provider(offering("m", 1)) as served,
        shard(served, tmp_path, ready=False, provider=[f"p1={served.address}", "p2=127.0.0.1:1"]) as running,
    ):
        await running.until(lambda process: process.kernels.compiled, 300)
        await running.until(lambda process: process.core.published.machines == 1)
        status, body = await page(running, "/readyz")
        assert status == 503 and "p2" in body
        assert (await page(running, "/healthz"))[0] == 200


async def test_a_provider_that_comes_late_is_taken_on(tmp_path: Path) -> None:
    async with provider(offering("m", 1)) as served:
        address = served.address
    async with (
        provider(offering("x", 1)) as other,
        shard(other, tmp_path, ready=False, provider=[f"p1={address}"]) as running,
    ):
        await running.until(lambda process: process.kernels.compiled, 300)
        await running.until(lambda process: process.core.published.providers[0].failures >= 2)
        async with provider(offering("m", 3), listen=address):
            await running.until(lambda process: process.core.published.ready, 60)
            assert (await page(running, "/readyz"))[0] == 200


async def test_metrics_have_the_documented_names_and_emptied_series_disappear(tmp_path: Path) -> None:
    async with small_fleet(tmp_path, 2) as running, operator(running.address, "c-1") as cluster:
        await running.until(lambda process: process.metrics.value("inventory_machines", ("Idle", "Reserved", "0")) == 2)
        cluster.want(rows(2))
        await cluster.send_rollup()
        await cluster.until(lambda heard: len(heard.configured) == 2)
        await running.until(
            lambda process: process.metrics.value("inventory_machines", ("Configured", "Reserved", "0")) == 2
        )
        _, text = await page(running, "/metrics")
        assert 'state="Idle"' not in text
        for name in (
            "bigfleet_shard_cycle_duration_seconds_bucket",
            'bigfleet_shard_cycle_phase_duration_seconds_bucket{le="0.001",phase="phase1"}',
            'bigfleet_shard_actions_total{kind="Bootstrap"} 2.0',
            'bigfleet_shard_action_execute_outcomes_total{kind="Bootstrap",outcome="success"} 2.0',
            "bigfleet_shard_active_sessions 1.0",
            'bigfleet_shard_session_lifecycle_total{event="installed"} 1.0',
            'bigfleet_shard_demand_machines{interruption_penalty_bucket="pinned"} 0.0',
            'bigfleet_shard_provider_rpc_duration_seconds_count{method="Configure",provider="p1"} 2.0',
            'bigfleet_shard_phase1_occ_proposals_total{outcome="conflict"} 0.0',
            "bigfleet_shard_configure_phase_seconds_count",
            "bigfleet_shard_request_bootstrap_seconds_count 2.0",
        ):
            assert name in text, name


async def test_inspect_needs_sends_a_header_then_rows_in_the_order_of_service(tmp_path: Path) -> None:
    async with (
        small_fleet(tmp_path, 1) as running,
        operator(running.address, "a") as one,
        operator(running.address, "b") as two,
    ):
        stub = shardread_pb2_grpc.ShardReadStub(channel(running.address))
        one.want([*rows(1, 10), *rows(1, 500)])
        two.want(rows(1, 100))
        for cluster in (one, two):
            await cluster.send_rollup()
            await cluster.until(lambda heard: len(heard.acks) == 2)

        async def asked(**fields: object) -> list[shardread_pb2.InspectNeedsResponse]:
            return [frame async for frame in stub.InspectNeeds(shardread_pb2.InspectNeedsRequest(**fields))]  # type: ignore[arg-type]

        header, *needs = await asked()
        assert header.header.cycle >= 1 and header.header.total_needs == 3
        assert [frame.need.need.priority for frame in needs] == [500, 100, 10]
        assert needs[0].need.profile_fingerprint == "p=500|ipb=1|rpb=1|reqs=|spr="
        assert dict(needs[0].need.need.aggregate_resources) == {"cpu": "2", "memory": "4Gi"}
        assert needs[1].need.unmet_reason != shardread_pb2.UNMET_REASON_UNSPECIFIED
        header, *needs = await asked(cluster_id="a", limit=1)
        assert header.header.total_needs == 2 and len(needs) == 1
        header, *needs = await asked(cluster_id="nobody")
        assert header.header.total_needs == 0 and not needs
        assert len(await asked(limit=-1)) == 4


async def test_before_the_first_cycle_the_header_is_all_zero(tmp_path: Path) -> None:
    async with (
        provider(offering("m", 1)) as served,
        shard(served, tmp_path, cycle_interval="1h", early_cycle_interval="1h") as running,
    ):
        stub = shardread_pb2_grpc.ShardReadStub(channel(running.address))
        frames = [frame async for frame in stub.InspectNeeds(shardread_pb2.InspectNeedsRequest())]
        assert len(frames) == 1
        assert (frames[0].header.cycle, frames[0].header.computed_at_unix_nanos) == (0, 0)


async def test_machines_actions_stories_and_explanations_can_be_read(tmp_path: Path) -> None:
    async with small_fleet(tmp_path, 5) as running, operator(running.address, "c-1") as cluster:
        cluster.want([*rows(3, 100), Row(pods=1, unit={"cpu": "64"}, priority=5)])
        await cluster.send_rollup()
        await cluster.until(lambda heard: len(heard.configured) == 3)
        stub = shardread_pb2_grpc.ShardReadStub(channel(running.address))

        pages = [each async for each in stub.ListMachines(shardread_pb2.ListMachinesRequest(page_size=2))]
        names = [view.machine.id for each in pages for view in each.machines]
        assert [len(each.machines) for each in pages] == [2, 2, 1] and names == sorted(names)
        resumed = [
            view.machine.id
            async for each in stub.ListMachines(
                shardread_pb2.ListMachinesRequest(page_token=pages[0].next_page_token, limit=2)
            )
            for view in each.machines
        ]
        assert resumed == names[2:4]
        configured = [
            view
            async for each in stub.ListMachines(
                shardread_pb2.ListMachinesRequest(
                    states=[provider_pb2.MACHINE_STATE_CONFIGURED], cluster_id="c-1", provider="p1"
                )
            )
            for view in each.machines
        ]
        assert len(configured) == 3 and {view.assigned_priority for view in configured} == {100}

        actions = [
            view
            async for each in stub.ListActions(shardread_pb2.ListActionsRequest(page_size=2))
            for view in each.actions
        ]
        assert [view.kind for view in actions] == [shardread_pb2.ACTION_KIND_BOOTSTRAP] * 3
        assert {view.outcome for view in actions} == {"success"} and actions[0].instance_type == "m6i.large"

        story = await stub.Story(shardread_pb2.StoryRequest(machine_id=configured[0].machine.id))
        assert provider_pb2.MACHINE_STATE_CONFIGURED in {event.to_state for event in story.events}
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Story(shardread_pb2.StoryRequest(machine_id="nobody"))
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND

        unmet = await stub.Explain(shardread_pb2.ExplainRequest(cluster_id="c-1", unmet_only=True))
        assert unmet.total_matching == 1 and "large enough" in unmet.explanations[0].reason
        everything = await stub.Explain(shardread_pb2.ExplainRequest(cluster_id="c-1"))
        granted = everything.explanations[0].granted[0]
        assert (granted.count, granted.source) == (3, "credited")
        assert everything.explanations[0].price_per_hour == pytest.approx(0.3)


async def test_a_recording_started_by_an_admin_lies_in_the_data_directory(tmp_path: Path) -> None:
    from bigfleet.shard.recording.format import read_recording
    from bigfleet.wire import shard_pb2

    async with small_fleet(tmp_path, 3) as running, operator(running.address, "c-1") as cluster:
        stub = shard_pb2_grpc.ShardAdminStub(channel(running.address))
        started = await stub.Record(
            shard_pb2.RecordRequest(command=shard_pb2.RecordRequest.COMMAND_START, file_name="run.rec")
        )
        assert started.recording and started.path == str(tmp_path / "run.rec")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Record(
                shard_pb2.RecordRequest(command=shard_pb2.RecordRequest.COMMAND_START, file_name="../evil")
            )
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        cluster.want(rows(3))
        await cluster.send_rollup()
        await cluster.until(lambda heard: len(heard.configured) == 3)
        stopped = await stub.Record(shard_pb2.RecordRequest(command=shard_pb2.RecordRequest.COMMAND_STOP))
        assert not stopped.recording and stopped.bytes_written > 0
    steps = list(read_recording(tmp_path / "run.rec"))
    assert steps[0].step == 0 and steps[0].machines is not None and len(steps[0].machines) == 3
    assert any(step.demand is not None and step.demand.rollups for step in steps[1:])


async def test_a_part_that_breaks_ends_the_shard_with_its_error(tmp_path: Path) -> None:
    async with provider(offering("m", 1)) as served:
        with pytest.raises(OSError, match="disk on fire"):
            async with shard(served, tmp_path) as running:

                def broken(rows: object) -> None:
                    raise OSError("disk on fire")

                running.shard.conductor._write_journal = broken
                running.shard.conductor.post(ev.RailsSet(paused=True, who="test"))
                async with asyncio.timeout(10):
                    await asyncio.wait({running.serving})


async def test_with_a_coordinator_a_shard_acts_only_on_what_its_table_gives_it(tmp_path: Path) -> None:
    table = coordinator_pb2.OwnershipTable(
        version=3,
        coordinator_term=5,
        keys=["topology.kubernetes.io/zone"],
        default_shard_id="shard-9",
        domains=[
            coordinator_pb2.DomainAssignment(
                topology_key="topology.kubernetes.io/zone", topology_value="zone-a", shard_id="shard-0"
            )
        ],
    )
    mine, other = offering("mine", 2), offering("other", 2, zones=("zone-b",))
    async with (
        scripted_coordinator() as coordinator,
        provider(mine, other) as served,
        shard(
            served, tmp_path, coordinator_addr=coordinator.address, coordinator_heartbeat_interval="100ms"
        ) as running,
        operator(running.address, "c-1") as cluster,
    ):
        cluster.want(rows(4))
        await cluster.send_rollup()
        await cluster.until(lambda heard: len(heard.acks) == 2)
        await running.until(lambda _: len(coordinator.reports) >= 2)
        assert running.states() == {"Idle": 4}, "a shard without a table touched a machine"
        coordinator.answers.append(coordinator_pb2.ReportAck(coordinator_term=5, ownership=table))
        await cluster.until(lambda heard: len(heard.configured) == 2)
        assert all(machine.startswith("mine-") for machine in cluster.heard.configured)
        await running.until(lambda _: coordinator.reports[-1].ownership_version == 3)
        report = coordinator.reports[-1]
        assert report.summary.total_machines == 2 and report.highest_term == 5
        assert [(each.cluster_id, each.connected) for each in report.clusters] == [("c-1", True)]
        assert [short.fingerprint for short in report.shortfalls] == ["p=100|ipb=1|rpb=1|reqs=|spr="]
    async with (
        provider(mine, other) as served,
        shard(served, tmp_path, coordinator_addr="127.0.0.1:1", coordinator_heartbeat_interval="100ms") as running,
        operator(running.address, "c-1") as cluster,
    ):
        # The coordinator is gone and the table is in the journal: nothing else is needed.
        cluster.want(rows(2))
        await cluster.send_rollup()
        await cluster.until(lambda heard: len(heard.configured) == 2)


async def page(running: Running, path: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", running.shard.http.port)
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split(" ")[1]), body
