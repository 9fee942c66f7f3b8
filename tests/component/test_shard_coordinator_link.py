"""The coordinator link against a scripted coordinator over a real socket: reports, terms, instructions, losses."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

import bigfleet.shard
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import Resources
from bigfleet.shard.contract import events as ev
from bigfleet.shard.contract.coordination import (
    Ack,
    AckOutcome,
    AssignDomain,
    ClusterBinding,
    CoordinatorAnswered,
    CoordinatorInstruction,
    DrainFor,
    LetGo,
    OwnershipTable,
    Phase,
    Selector,
    Switches,
    TableTransfer,
)
from bigfleet.shard.coordinator_link.link import CoordinatorLink, Standing
from bigfleet.shard.telemetry.metrics import ShardMetrics
from bigfleet.transport import channel
from bigfleet.wire import capacity_pb2, coordinator_pb2
from tests.strategies.scripted_coordinator import ScriptedCoordinator, scripted_coordinator
from tools.waiting import until

Wire = coordinator_pb2.InstructAck


class Listener:
    """Stands for the conductor with a core behind it: remembers events, and says what it has to say."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.term = 0
        self.acks: dict[str, Ack] = {}
        self.on_event: Callable[[CoordinatorAnswered], None] = lambda event: None

    def ask(self, event: ev.Event) -> asyncio.Future[None]:
        assert isinstance(event, CoordinatorAnswered)
        self.events.append(event)
        self.term = max(self.term, event.term)
        for told in event.told:
            self.acks.pop(told, None)
        self.on_event(event)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def standing(self) -> Standing:
        summary = coordinator_pb2.ShardSummary(total_machines=3, free_machines=1)
        return Standing(summary, (), (), 12, self.term, tuple(self.acks.values()), ("p",))

    def accepts(self, event: CoordinatorAnswered) -> None:
        for each in event.instructions:
            self.acks[each.id] = Ack(each.id, AckOutcome.ACCEPTED, machines=("m-1",))


@asynccontextmanager
async def linked(**options: Any) -> AsyncIterator[tuple[CoordinatorLink, ScriptedCoordinator, Listener]]:
    listener = Listener()
    async with scripted_coordinator() as coordinator:
        wanted = options.pop("addresses", ["COORDINATOR"])
        link = CoordinatorLink(
            [address.replace("COORDINATOR", coordinator.address) for address in wanted],
            channel,
            listener,
            listener.standing,
            ShardMetrics(),
            shard_id="shard-0",
            epoch=7,
            advertise="shard-0.example:7780",
            **options,
        )
        yield link, coordinator, listener


def instruction(name: str, term: int = 5, **payload: Any) -> coordinator_pb2.CoordinatorInstruction:
    return coordinator_pb2.CoordinatorInstruction(instruction_id=name, coordinator_term=term, **payload)


def answered(*instructions: coordinator_pb2.CoordinatorInstruction, term: int = 5) -> coordinator_pb2.ReportAck:
    return coordinator_pb2.ReportAck(coordinator_term=term, acknowledged=True, instructions=instructions)


DOMAIN = coordinator_pb2.AssignDomain(topology_key="zone", topology_value="a")


async def test_a_report_says_who_and_how_the_shard_is_and_counts_from_one() -> None:
    async with linked() as (link, coordinator, listener):
        assert await link.report() and await link.report()
        first, second = coordinator.reports
        assert (first.shard_id, first.cycle, first.shard_epoch, second.cycle) == ("shard-0", 1, 7, 2)
        assert first.shard_address == "shard-0.example:7780"
        assert first.summary.total_machines == 3
        assert (first.ownership_version, first.highest_term, second.highest_term) == (12, 0, 5)
        assert [event.term for event in listener.events] == [5, 5]
        assert list(first.providers) == ["p"]


async def test_an_instruction_reaches_the_core_and_its_answer_goes_with_the_next_report() -> None:
    async with linked() as (link, coordinator, listener):
        listener.on_event = listener.accepts
        coordinator.answers.append(answered(instruction("i-1", assign_domain=DOMAIN)))
        await link.report()
        await link.report()
        (ack,) = coordinator.reports[1].instruction_acks
        assert (ack.instruction_id, ack.outcome, list(ack.machine_ids)) == ("i-1", Wire.OUTCOME_ACCEPTED, ["m-1"])
        assert listener.events[0].instructions == (CoordinatorInstruction("i-1", 5, AssignDomain("zone", "a")),)
        assert listener.events[1].told == ("i-1",) and not listener.acks


async def test_unknown_and_unreadable_payloads_reach_the_core_without_content() -> None:
    strange = coordinator_pb2.MachineSelector(count=1, min_unit={"cpu": "many"})
    async with linked() as (link, coordinator, listener):
        unreadable = coordinator_pb2.TransferOwnership(transfer_id="t", selector=strange)
        coordinator.answers.append(answered(instruction("i-1"), instruction("i-2", transfer_ownership=unreadable)))
        await link.report()
        assert [each.payload for each in listener.events[0].instructions] == [None, None]


async def test_acknowledgements_survive_reports_that_did_not_get_through() -> None:
    async with linked() as (link, coordinator, listener):
        listener.on_event = listener.accepts
        coordinator.answers.append(answered(instruction("i-1", assign_domain=DOMAIN)))
        coordinator.answers.extend([(grpc.StatusCode.UNAVAILABLE, ""), (grpc.StatusCode.INTERNAL, "")])
        assert [await link.report() for _ in range(4)] == [True, False, False, True]
        assert [report.cycle for report in coordinator.reports] == [1, 2, 3, 4]
        assert [ack.instruction_id for ack in coordinator.reports[3].instruction_acks] == ["i-1"]


async def test_a_coordinator_that_does_not_answer_costs_one_deadline() -> None:
    async with linked(deadline=0.2) as (link, coordinator, _):
        coordinator.silent = True
        assert not await link.report()


async def test_a_follower_names_the_leader_and_the_link_follows() -> None:
    async with linked() as (link, follower, _), linked() as (_, leader, _):
        follower.answers.append((grpc.StatusCode.FAILED_PRECONDITION, leader.address))
        assert not await link.report()
        assert await link.report()
        assert (len(follower.reports), len(leader.reports)) == (1, 1)


async def test_an_unreachable_address_gives_way_to_the_next() -> None:
    async with linked(addresses=["127.0.0.1:1", "COORDINATOR"]) as (link, _, _):
        assert not await link.report()
        assert await link.report()


async def test_table_bindings_and_rails_are_read() -> None:
    phases = coordinator_pb2.OwnershipTransfer
    moved = phases(
        transfer_id="t",
        phase=phases.PHASE_RELEASED,
        from_shard_id="shard-1",
        to_shard_id="shard-0",
        provider="p",
        machine_ids=["in"],
    )
    table = coordinator_pb2.OwnershipTable(
        version=9,
        coordinator_term=5,
        keys=["rack", "zone"],
        default_shard_id="shard-1",
        domains=[coordinator_pb2.DomainAssignment(topology_key="zone", topology_value="a", shard_id="shard-0")],
        transfers=[moved],
    )
    bindings = [coordinator_pb2.ClusterBinding(cluster_id="c-2", shard_id="shard-1", shard_address="there:1")]
    rails = capacity_pb2.Rails(actuation_paused=True, set_by="bigfleet://admin")
    async with linked() as (link, coordinator, listener):
        coordinator.answers.append(
            coordinator_pb2.ReportAck(coordinator_term=5, ownership=table, bindings=bindings, rails=rails)
        )
        await link.report()
        transfer = TableTransfer("t", Phase.RELEASED, "shard-1", "shard-0", "p", ("in",))
        assert listener.events == [
            CoordinatorAnswered(
                term=5,
                table=OwnershipTable(5, 9, "shard-1", ("rack", "zone"), (("zone", "a", "shard-0"),), (transfer,)),
                bindings=(ClusterBinding("c-2", "shard-1", "there:1"),),
                switches=Switches(True, False, "bigfleet://admin"),
            )
        ]


async def test_requests_for_machines_are_read_with_everything_that_narrows_them() -> None:
    selector = coordinator_pb2.MachineSelector(
        instance_type="m5",
        zone="a",
        count=2,
        provider="p",
        min_unit={"cpu": "2"},
        requirements=[capacity_pb2.NodeSelectorRequirement(key="arch", operator=1, values=["arm"])],
    )
    wanted = Selector(2, "m5", "a", "p", (Requirement("arch", Operator.IN, ("arm",)),), Resources.of(cpu=2000))
    moved = coordinator_pb2.TransferOwnership(from_shard_id="shard-0", transfer_id="t-1", selector=selector)
    named = coordinator_pb2.ReassignSpeculative(machine_ids=["s"], transfer_id="t-2")
    drained = coordinator_pb2.CrossShardDrain(preemptor_priority=900, preemptor_bucket=3, selector=selector)
    async with linked() as (link, coordinator, listener):
        coordinator.answers.append(
            answered(
                instruction("i-1", transfer_ownership=moved),
                instruction("i-2", reassign_speculative=named),
                instruction("i-3", cross_shard_drain=drained),
            )
        )
        await link.report()
        assert [each.payload for each in listener.events[0].instructions] == [
            LetGo("t-1", (), wanted, donor="shard-0"),
            LetGo("t-2", ("s",), speculative=True),
            DrainFor("i-3", 900, 3, (), wanted),
        ]


async def test_who_asked_gets_the_answer_without_waiting_for_the_next_interval() -> None:
    async with linked(interval=3600.0) as (link, coordinator, listener):
        listener.on_event = listener.accepts
        coordinator.answers.append(answered(instruction("i-1", assign_domain=DOMAIN)))
        running = asyncio.create_task(link.run())
        try:
            await until(lambda: len(coordinator.reports) >= 2)
            assert [ack.instruction_id for ack in coordinator.reports[1].instruction_acks] == ["i-1"]
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_a_report_is_sent_at_once_when_asked() -> None:
    async with linked(interval=3600.0) as (link, coordinator, _):
        running = asyncio.create_task(link.run())
        try:
            await until(lambda: coordinator.reports)
            link.report_soon()
            await until(lambda: len(coordinator.reports) >= 2)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("path", sorted(Path(bigfleet.shard.__file__).parent.rglob("*.py")), ids=lambda path: path.name)
def test_no_part_of_the_shard_imports_the_coordinator(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        assert not any(name.startswith("bigfleet.coordinator") for name in names)
