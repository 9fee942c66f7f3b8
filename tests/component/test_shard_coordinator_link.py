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
from bigfleet.shard.contract import events as ev
from bigfleet.shard.coordinator_link.link import CoordinatorLink, Standing
from bigfleet.shard.telemetry.metrics import ShardMetrics
from bigfleet.transport import channel
from bigfleet.wire import capacity_pb2, coordinator_pb2
from tests.strategies.scripted_coordinator import ScriptedCoordinator, scripted_coordinator
from tools.waiting import until

Ack = coordinator_pb2.InstructAck


class Listener:
    """Stands for the conductor: remembers events and lets go of machines when asked."""

    def __init__(self) -> None:
        self.events: list[ev.Event] = []
        self.on_event: Callable[[ev.Event], None] = lambda event: None

    def post(self, event: ev.Event) -> None:
        self.events.append(event)
        self.on_event(event)

    def ask(self, event: ev.Event) -> asyncio.Future[None]:
        self.post(event)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def of(self, kind: type[ev.Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@asynccontextmanager
async def linked(**options: Any) -> AsyncIterator[tuple[CoordinatorLink, ScriptedCoordinator, Listener]]:
    listener = Listener()
    async with scripted_coordinator() as coordinator:
        wanted = options.pop("addresses", ["COORDINATOR"])
        link = CoordinatorLink(
            [address.replace("COORDINATOR", coordinator.address) for address in wanted],
            channel,
            listener,
            options.pop("standing", nothing_to_tell),
            ShardMetrics(),
            shard_id="shard-0",
            epoch=7,
            advertise="shard-0.example:7780",
            **options,
        )
        yield link, coordinator, listener


def nothing_to_tell() -> Standing:
    return Standing(coordinator_pb2.ShardSummary(total_machines=3, free_machines=1), (), (), 12)


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
        assert listener.of(ev.TermSeen) == [ev.TermSeen(5), ev.TermSeen(5)]


async def test_an_assigned_domain_reaches_the_core_and_is_acknowledged_with_the_next_report() -> None:
    async with linked() as (link, coordinator, listener):
        coordinator.answers.append(answered(instruction("i-1", assign_domain=DOMAIN)))
        await link.report()
        await link.report()
        assert [(ack.instruction_id, ack.outcome) for ack in coordinator.reports[1].instruction_acks] == [
            ("i-1", Ack.OUTCOME_ACCEPTED)
        ]
        received = listener.of(ev.OwnershipReceived)
        assert [(event.domains, event.default_owner) for event in received] == [((("zone", "a"),), False)]
        coordinator.answers.append(
            answered(
                instruction(
                    "i-2", unassign_domain=coordinator_pb2.UnassignDomain(topology_key="zone", topology_value="a")
                )
            )
        )
        await link.report()
        assert listener.of(ev.OwnershipReceived)[-1].default_owner


async def test_a_redelivered_instruction_is_acknowledged_again_and_carried_out_once() -> None:
    async with linked() as (link, coordinator, listener):
        again = answered(instruction("i-1", assign_domain=DOMAIN))
        coordinator.answers.extend([again, again])
        for _ in range(3):
            await link.report()
        assert coordinator.reports[2].instruction_acks[0].reason == "duplicate-redelivery"
        assert len(listener.of(ev.OwnershipReceived)) == 1


async def test_an_instruction_of_an_old_term_is_refused_and_still_acknowledged() -> None:
    async with linked() as (link, coordinator, listener):
        await link.report()
        coordinator.answers.append(answered(instruction("i-1", term=0, assign_domain=DOMAIN)))
        await link.report()
        await link.report()
        assert coordinator.reports[2].instruction_acks[0].outcome == Ack.OUTCOME_REJECTED_STALE
        assert not listener.of(ev.OwnershipReceived)


async def test_a_coordinator_of_an_old_term_is_not_listened_to() -> None:
    async with linked() as (link, coordinator, listener):
        await link.report()
        coordinator.answers.append(answered(instruction("i-1", assign_domain=DOMAIN), term=4))
        await link.report()
        await link.report()
        assert not coordinator.reports[2].instruction_acks
        assert not listener.of(ev.OwnershipReceived)
        assert link.term == 5


async def test_unknown_payloads_are_refused_and_nameless_ones_ignored() -> None:
    async with linked() as (link, coordinator, _):
        coordinator.answers.append(answered(instruction("i-1"), instruction("", assign_domain=DOMAIN)))
        await link.report()
        await link.report()
        (ack,) = coordinator.reports[1].instruction_acks
        assert (ack.outcome, ack.reason) == (Ack.OUTCOME_REJECTED_INVALID, "unknown payload")


async def test_acknowledgements_survive_reports_that_did_not_get_through() -> None:
    async with linked() as (link, coordinator, _):
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


async def test_the_ownership_table_is_read_from_this_shards_side() -> None:
    phases = coordinator_pb2.OwnershipTransfer
    table = coordinator_pb2.OwnershipTable(
        version=9,
        coordinator_term=5,
        keys=["rack", "zone"],
        default_shard_id="shard-1",
        domains=[
            coordinator_pb2.DomainAssignment(topology_key="zone", topology_value="a", shard_id="shard-0"),
            coordinator_pb2.DomainAssignment(topology_key="zone", topology_value="b", shard_id="shard-1"),
        ],
        transfers=[
            phases(phase=phases.PHASE_RELEASED, from_shard_id="shard-1", to_shard_id="shard-0", machine_ids=["in"]),
            phases(
                phase=phases.PHASE_PROPOSED, from_shard_id="shard-1", to_shard_id="shard-0", machine_ids=["not-yet"]
            ),
            phases(phase=phases.PHASE_ADOPTED, from_shard_id="shard-0", to_shard_id="shard-1", machine_ids=["out"]),
        ],
    )
    bindings = [
        coordinator_pb2.ClusterBinding(cluster_id="c-1", shard_id="shard-0"),
        coordinator_pb2.ClusterBinding(cluster_id="c-2", shard_id="shard-1"),
    ]
    async with linked() as (link, coordinator, listener):
        coordinator.answers.append(
            coordinator_pb2.ReportAck(
                coordinator_term=5,
                ownership=table,
                bindings=bindings,
                rails=capacity_pb2.Rails(actuation_paused=True, set_by="bigfleet://admin"),
            )
        )
        await link.report()
        (received,) = listener.of(ev.OwnershipReceived)
        assert received == ev.OwnershipReceived(
            term=5,
            version=9,
            domains=(("zone", "a"),),
            keys=("rack", "zone"),
            granted=("in",),
            withheld=("out",),
            assigned_elsewhere=(("zone", "b"),),
            default_owner=False,
            clusters=("c-1",),
        )
        assert listener.of(ev.RailsSet) == [ev.RailsSet(True, False, "bigfleet://admin", from_coordinator=True)]


async def test_a_transfer_is_acknowledged_with_the_machines_the_core_let_go() -> None:
    wanted = coordinator_pb2.TransferOwnership(
        from_shard_id="shard-0",
        to_shard_id="shard-1",
        transfer_id="t-1",
        selector=coordinator_pb2.MachineSelector(instance_type="m5", zone="a", count=2),
    )
    async with linked() as (link, coordinator, listener):

        def let_go(event: ev.Event) -> None:
            if isinstance(event, ev.TransferAsked):
                link.released(ev.TransferAnswered(event.transfer, ("m-1", "m-2")))

        listener.on_event = let_go
        coordinator.answers.append(answered(instruction("i-1", transfer_ownership=wanted)))
        await link.report()
        await link.report()
        assert listener.of(ev.TransferAsked) == [ev.TransferAsked("t-1", 2, "m5", "a", False)]
        (ack,) = coordinator.reports[1].instruction_acks
        assert (ack.outcome, list(ack.machine_ids)) == (Ack.OUTCOME_ACCEPTED, ["m-1", "m-2"])


async def test_a_cross_shard_drain_is_acknowledged_with_the_machines_that_are_drained() -> None:
    wanted = coordinator_pb2.CrossShardDrain(
        preemptor_priority=900, selector=coordinator_pb2.MachineSelector(instance_type="m5", zone="a", count=2)
    )
    async with linked() as (link, coordinator, listener):

        def drain(event: ev.Event) -> None:
            if isinstance(event, ev.DrainAsked):
                link.released(ev.TransferAnswered(event.transfer, ("m-1",)))

        listener.on_event = drain
        coordinator.answers.append(answered(instruction("i-1", cross_shard_drain=wanted)))
        await link.report()
        await link.report()
        assert listener.of(ev.DrainAsked) == [ev.DrainAsked("i-1", 900, 2, "m5", "a")]
        (ack,) = coordinator.reports[1].instruction_acks
        assert (ack.outcome, list(ack.machine_ids)) == (Ack.OUTCOME_ACCEPTED, ["m-1"])


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
