"""Capacity that moves, over real sockets: idle machines, then slots, then drains; and a real shard that reports."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import structlog

from bigfleet.coordinator.core.policy import SECOND, Policy
from bigfleet.coordinator.core.records import Phase
from bigfleet.wire import capacity_pb2, provider_pb2
from bigfleet.wire import coordinator_pb2 as pb
from tests.strategies.coordinator_process import OURS, Ack, Asked, Peer, coordinator
from tools.processes import BIGFLEET, INTERPRETED, Program, free_address
from tools.waiting import until

EAGER = Policy(after=0, preempt_after=0, settle=0, cooldown=600 * SECOND, retry=1)
KEY = "node.kubernetes.io/instance-type"


def short(units: int = 3, priority: int = 100) -> pb.Shortfall:
    made = pb.Shortfall(fingerprint="fp", units=units, priority=priority, age_seconds=90)
    made.min_unit.update({"cpu": "3"})
    made.requirements.add(key=KEY, operator=capacity_pb2.NodeSelectorRequirement.OPERATOR_IN, values=["small"])
    return made


def has(count: int, *, state: Any = provider_pb2.MACHINE_STATE_IDLE, bound: int = 0) -> pb.ShardSummary:
    made = pb.ShardSummary(total_machines=count + bound, free_machines=count)
    made.per_instance_type_counts["small"] = count + bound
    if count:
        cell = made.free_cells.add(instance_type="small", zone="z", state=state, count=count, provider="p")
        cell.allocatable.update({"cpu": "4"})
    return made


def peers(asked: Asked, *names: str) -> list[Peer]:
    return [Peer(asked.stub, name, capabilities=OURS) for name in names]


async def plan(asked: Asked, later: int = 0) -> None:
    """One look for capacity to move, so long after the last report."""
    tenure = asked.process.replica.tenure
    assert tenure is not None
    await tenure.plan(max(heard.at for heard in tenure.leader.heard.values()) + later)


async def test_a_shortfall_that_becomes_old_enough_need_not_wait_for_the_interval(tmp_path: Path) -> None:
    async with coordinator(tmp_path, policy=EAGER, rebalance_seconds=3600.0) as asked:
        needy, rich = peers(asked, "needy", "rich")
        await rich.obey(providers=["p"], summary=has(20))
        await needy.obey(providers=["p"], shortfalls=[short()])
        await until(lambda: asked.tables.transfers, what="a transfer is proposed")
        (instruction,) = (await rich.obey(providers=["p"], summary=has(20))).instructions
        assert instruction.transfer_ownership.to_shard_id == "needy"


async def test_idle_machines_go_from_a_shard_that_has_them_to_one_that_is_short(tmp_path: Path) -> None:
    async with coordinator(tmp_path, policy=EAGER, rebalance_seconds=0.05) as asked:
        needy, rich = peers(asked, "needy", "rich")
        await needy.obey(providers=["p"], shortfalls=[short()])
        await rich.obey(providers=["p"], summary=has(20))
        for _ in range(200):
            answer = await rich.obey(providers=["p"], summary=has(20))
            if answer.instructions:
                break
            await asyncio.sleep(0.02)
        (instruction,) = answer.instructions
        asking = instruction.transfer_ownership
        assert (asking.from_shard_id, asking.to_shard_id) == ("rich", "needy")
        assert (asking.selector.instance_type, asking.selector.zone, asking.selector.count) == ("small", "z", 3)
        assert dict(asking.selector.min_unit) == {"cpu": "3"} and asking.selector.provider == "p"
        assert [each.key for each in asking.selector.requirements] == [KEY]
        assert instruction.coordinator_term == 1
        # The recipient may not act before the donor has let go.
        table = (await needy.obey(providers=["p"], shortfalls=[short()])).ownership
        assert all(each.phase == Phase.PROPOSED for each in table.transfers)
        rich.ack(instruction.instruction_id, "m1", "m0", "m2")
        gone = (await rich.obey(providers=["p"], summary=has(17))).ownership
        (told,) = (await needy.obey(providers=["p"], shortfalls=[short()])).ownership.transfers
        assert (told.phase, told.to_shard_id, list(told.machine_ids)) == (Phase.RELEASED, "needy", ["m0", "m1", "m2"])
        assert gone.transfers[0].machine_ids == told.machine_ids, "the donor is told too that they are not its"
        await needy.obey(providers=["p"])
        assert [each.phase for each in asked.tables.transfers.values()] == [Phase.ADOPTED]


def moves(lines: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """What a person reads of machines that change shards."""
    asked = ("event", "transfer", "donor", "recipient", "kind", "count", "demand")
    told = [line for line in lines if line["event"].startswith("transfer ") and line["log_level"] == "info"]
    return [tuple(str(line[name]) for name in asked) for line in told]


async def test_a_person_reads_of_every_transfer_when_it_is_decided_and_when_it_ends(tmp_path: Path) -> None:
    lines: list[MutableMapping[str, Any]]
    at_once = Policy(after=0, preempt_after=0, settle=0, cooldown=0, retry=1)
    async with coordinator(tmp_path, policy=at_once) as asked:
        needy, rich = peers(asked, "needy", "rich")
        with structlog.testing.capture_logs() as lines:
            for given in (("m0", "m1"), ()):
                await needy.obey(providers=["p"], shortfalls=[short()])
                await rich.obey(providers=["p"], summary=has(20))
                await plan(asked)
                (instruction,) = (await rich.obey(providers=["p"], summary=has(20))).instructions
                rich.ack(instruction.instruction_id, *given)
                await rich.obey(providers=["p"], summary=has(20))
                for _ in range(3):
                    await needy.obey(providers=["p"])
    demand = "units of 3 vCPU at priority 100 (profile fp)"
    first, arrived, second, ended = moves(lines)
    assert first == ("transfer decided", "1.1", "rich", "needy", "idle", "3", f"3 {demand}")
    assert arrived[:6] == ("transfer ended: the machines are the recipient's", "1.1", "rich", "needy", "idle", "2")
    assert second[:2] == ("transfer decided", "1.2")
    assert ended[:2] == ("transfer ended: the donor had nothing to give", "1.2")


async def test_slots_follow_when_nothing_is_idle_and_the_quota_goes_along(tmp_path: Path) -> None:
    async with coordinator(tmp_path, policy=EAGER) as asked:
        needy, rich = peers(asked, "needy", "rich")
        slots = has(20, state=provider_pb2.MACHINE_STATE_SPECULATIVE)
        await needy.obey(providers=["p"], shortfalls=[short()])
        await rich.obey(providers=["p"], summary=slots)
        await asked.stub.UpsertProvider(
            pb.UpsertProviderRequest(provider=pb.ProviderEntry(name="p", address="h:1", region="eu"))
        )
        division = pb.QuotaAllocation(provider="p", region="eu", per_shard={"rich": 20, "needy": 1})
        division.slots.add(shard_id="rich", machine_ids=[f"m{number}" for number in range(5)])
        await asked.stub.SetQuota(pb.SetQuotaRequest(allocation=division))
        await plan(asked, 10**12)
        assert not asked.tables.transfers, "nobody was heard lately by that clock"
        await plan(asked)
        (instruction,) = (await rich.obey(providers=["p"], summary=slots)).instructions
        assert instruction.WhichOneof("payload") == "reassign_speculative"
        rich.ack(instruction.instruction_id, "m0", "m1", "m2")
        await rich.obey(providers=["p"], summary=slots)
        await needy.obey(providers=["p"])
        await needy.obey(providers=["p"])
        (listed,) = (await asked.stub.ListQuotas(pb.ListQuotasRequest())).allocations
        assert dict(listed.per_shard) == {"rich": 17, "needy": 4}
        owned = {each.shard_id: list(each.machine_ids) for each in listed.slots}
        assert owned == {"needy": ["m0", "m1", "m2"], "rich": ["m3", "m4"]}


async def test_drains_come_last_and_what_they_free_is_transferred_by_name(tmp_path: Path) -> None:
    async with coordinator(tmp_path, policy=EAGER) as asked:
        needy, full = peers(asked, "needy", "full")
        wanted = short(units=2, priority=1000)
        await needy.obey(shortfalls=[wanted])
        await full.obey(summary=has(0, bound=30))
        with structlog.testing.capture_logs() as lines:
            await plan(asked)
        (line,) = [each for each in lines if each["event"] == "drain decided"]
        assert (line["donor"], line["recipient"], line["count"]) == ("full", "needy", 2)
        (instruction,) = (await full.obey(summary=has(0, bound=30))).instructions
        drain = instruction.cross_shard_drain
        assert (drain.preemptor_priority, drain.selector.instance_type) == (1000, "small")
        full.ack(instruction.instruction_id, "victim")
        (transfer,) = (await full.obey(summary=has(0, bound=30))).instructions
        assert list(transfer.transfer_ownership.machine_ids) == ["victim"]
        full.ack(transfer.instruction_id, outcome=Ack.OUTCOME_FAILED, reason="still draining")
        await full.obey(summary=has(0, bound=30))
        assert [each.phase for each in asked.tables.transfers.values()] == [Phase.PROPOSED], "asked again, not given up"
        (again,) = (await full.obey(summary=has(0, bound=30))).instructions
        full.ack(again.instruction_id, "victim")
        await full.obey(summary=has(0, bound=29))
        told = (await needy.obey(shortfalls=[wanted])).ownership.transfers
        assert [list(each.machine_ids) for each in told if each.phase == Phase.RELEASED] == [["victim"]]


async def test_a_paused_shard_neither_gives_nor_gets(tmp_path: Path) -> None:
    async with coordinator(tmp_path, policy=EAGER) as asked:
        needy, rich = peers(asked, "needy", "rich")
        await asked.stub.SetRails(capacity_pb2.SetRailsRequest(rails=capacity_pb2.Rails(actuation_paused=True)))
        await needy.obey(shortfalls=[short()])
        await rich.obey(summary=has(20))
        await plan(asked)
        assert not asked.tables.transfers
        await asked.stub.SetRails(capacity_pb2.SetRailsRequest(rails=capacity_pb2.Rails()))
        await plan(asked)
        assert asked.tables.transfers


async def test_a_donor_that_gives_what_was_not_asked_gets_it_back(tmp_path: Path) -> None:
    async with coordinator(tmp_path, policy=EAGER) as asked:
        needy, rich = peers(asked, "needy", "rich")
        await needy.obey(shortfalls=[short(units=1)])
        await rich.obey(summary=has(20))
        await plan(asked)
        (instruction,) = (await rich.obey(summary=has(20))).instructions
        rich.ack(instruction.instruction_id, "m0", "m1", "m2", "m3")
        table = (await rich.obey(summary=has(16))).ownership
        assert not table.transfers and not asked.tables.transfers


async def test_a_real_shard_registers_reports_and_persists_its_table(tmp_path: Path) -> None:
    async with coordinator(tmp_path / "coordinator") as asked:
        shard = Program(
            "shard",
            [
                *(*BIGFLEET, "shard", "--log-format", "json", "--fake-provider", "--id", "real"),
                *("--listen", free_address(), "--metrics-addr", "0", "--data-dir", str(tmp_path / "shard")),
                *("--coordinator-addr", asked.address, "--coordinator-heartbeat-interval", "200ms"),
            ],
            tmp_path,
            INTERPRETED,
        )
        try:
            shard.start()
            for _ in range(1200):
                tenure = asked.process.replica.tenure
                assert tenure is not None and shard.alive, shard.tail()
                known = asked.tables.shards.get("real")
                heard = tenure.leader.heard.get(known.generation) if known is not None else None
                if known is not None and heard is not None and heard.report.version == asked.tables.version(known):
                    break
                await asyncio.sleep(0.05)
            else:
                raise AssertionError(f"the shard never confirmed its table: {shard.tail()}")
            assert known.tables
        finally:
            shard.kill()
