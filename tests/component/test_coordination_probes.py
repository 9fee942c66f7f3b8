"""What a shard did wrong with its coordinator before issue 16, each tried on a real process over the wire.

Nine were found on 7eab7f6, one of them with two instructions. They are tried here by a coordinator that says what a
test tells it to, so nothing of the shard's insides is assumed: `BIGFLEET_PROBED_TREE=<a checkout of 7eab7f6> pytest` on
this file tries that shard, and every one of them fails.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from bigfleet.transport import Server, channel
from bigfleet.wire import coordinator_pb2 as pb
from bigfleet.wire import coordinator_pb2_grpc, shardread_pb2, shardread_pb2_grpc
from tests.strategies.operator_client import REFERENCE, Row, SyntheticOperator, operator
from tools.multi_shard import QUICK
from tools.processes import BIGFLEET, INTERPRETED, Program, free_address
from tools.waiting import until

TREE = os.environ.get("BIGFLEET_PROBED_TREE", "")
ENVIRONMENT = INTERPRETED | ({"PYTHONPATH": f"{TREE}/src"} if TREE else {})
SITE = "site"
ME, OTHER = "me", "other"
A0, A1, B0, B1 = "a-z-0000", "a-z-0001", "b-z-0000", "b-z-0001"
POD = {"cpu": "4"}
PATIENCE = float(os.environ.get("BIGFLEET_PROBE_PATIENCE", "60"))


class Coordinator(coordinator_pb2_grpc.CoordinatorServicer):
    """Answers every report with the same, until the test says otherwise."""

    def __init__(self) -> None:
        self.answer = pb.ReportAck(coordinator_term=5, acknowledged=True)
        self.reports = 0
        self.acks: dict[str, pb.InstructAck] = {}
        self.address = ""

    async def ReportShard(self, request: pb.ShardReport, context: Any) -> pb.ReportAck:  # noqa: N802
        self.reports += 1
        self.acks.update({each.instruction_id: each for each in request.instruction_acks})
        return self.answer

    def table(self, version: int, *transfers: pb.OwnershipTransfer, mine: tuple[str, ...] = ("a",)) -> None:
        """From now on: these sites are the shard's, everything else is somebody else's."""
        table = self.answer.ownership
        table.Clear()
        table.version, table.coordinator_term, table.default_shard_id = version, self.answer.coordinator_term, OTHER
        table.keys.append(SITE)
        for site in ("a", "b"):
            owner = ME if site in mine else OTHER
            table.domains.add(topology_key=SITE, topology_value=site, shard_id=owner)
        table.transfers.extend(transfers)

    async def instruct(self, name: str, **payload: Any) -> pb.InstructAck:
        """Ask until it is answered."""
        term = self.answer.coordinator_term
        self.answer.instructions.add(instruction_id=name, coordinator_term=term, sequence_number=1, **payload)
        try:
            return await until(lambda: self.acks.get(name), seconds=PATIENCE, what=f"an answer to {name}")
        finally:
            del self.answer.instructions[:]

    async def heard(self) -> None:
        """The shard has got what is answered now, and acts by it."""
        then = self.reports
        await until(lambda: self.reports >= then + 3, seconds=PATIENCE, what="three reports")


class Probed:
    """A shard with two machines at either of two sites."""

    def __init__(self, folder: Path, coordinator: Coordinator) -> None:
        self.folder, self.coordinator = folder, coordinator
        self.address, provider_address = free_address(), free_address()
        command = ("fake-provider", "--log-format", "json", "--durations", "instant", "--listen", provider_address)
        catalogue = folder / "catalogue.yaml"
        self.provider = Program("provider", [*BIGFLEET, *command, "--catalogue", str(catalogue)], folder, ENVIRONMENT)
        settings = {
            **QUICK,
            "id": ME,
            "provider": [f"p={provider_address}"],
            "coordinator-addr": coordinator.address,
            "data-dir": str(folder / "data"),
            "listen": self.address,
            "metrics-addr": "0",
        }
        config = folder / "shard.yaml"
        config.write_text(yaml.safe_dump(settings))
        self.shard = Program(
            "shard", [*BIGFLEET, "shard", "--log-format", "json", "--config", str(config)], folder, ENVIRONMENT
        )
        self.label(a="a", b="b")

    def label(self, **sites: str) -> None:
        """The provider's machines stand here from its next start on."""
        offerings = [
            {
                "name": name,
                "instance_type": "m.four",
                "capacity_type": "on-demand" if name == "slot" else "bare-metal",
                "count": 2,
                "hosts": 0 if name == "slot" else 2,
                "zones": ["z"],
                "price_per_hour": 0.2,
                "resources": {"cpu": "4", "memory": "16Gi"},
                "labels": {SITE: site},
            }
            for name, site in sites.items()
        ]
        (self.folder / "catalogue.yaml").write_text(yaml.safe_dump({"provider": "p", "offerings": offerings}))

    def relabel(self, **sites: str) -> None:
        """The provider comes back with its machines elsewhere."""
        self.provider.kill()
        self.label(**sites)
        self.provider.start()
        self.provider.told("provider ready")

    def start(self) -> None:
        self.provider.start()
        self.provider.told("provider ready")
        self.shard.start()
        self.shard.told("listening")

    async def restart(self) -> None:
        self.shard.kill()
        self.shard.start()
        self.shard.told("listening")
        await until(self._sees_all, seconds=PATIENCE, what="the shard lists its machines")

    async def owns(self, *machines: str) -> None:
        """Wait until it owns exactly these, and see that it stays so."""
        await until(self.owned, lambda owned: owned == set(machines), seconds=PATIENCE, what=f"it owns {machines}")
        await self.coordinator.heard()
        assert await self.owned() == set(machines)

    async def owned(self) -> set[str]:
        return {each.machine.id for each in await self._machines() if each.owned}

    async def _sees_all(self) -> bool:
        return len(await self._machines()) == 4

    async def _machines(self) -> list[shardread_pb2.MachineView]:
        async with channel(self.address) as opened:
            stub: Any = shardread_pb2_grpc.ShardReadStub(opened)
            pages = stub.ListMachines(shardread_pb2.ListMachinesRequest())
            return [each async for page in pages for each in page.machines]


@asynccontextmanager
async def probed(folder: Path) -> AsyncIterator[tuple[Probed, Coordinator]]:
    coordinator = Coordinator()
    server = Server("127.0.0.1:0")
    server.add(coordinator_pb2_grpc.add_CoordinatorServicer_to_server, coordinator)
    await server.start()
    coordinator.address = server.address
    made = Probed(folder, coordinator)
    try:
        made.start()
        yield made, coordinator
    finally:
        for program in (made.shard, made.provider):
            if program.alive:
                program.kill()
        await server.stop(grace=0)


def moving(name: str, phase: int, to: str, *machines: str, provider: str = "p") -> pb.OwnershipTransfer:
    given = pb.OwnershipTransfer(transfer_id=name, phase=phase, to_shard_id=to, machine_ids=machines)  # type: ignore[arg-type]
    given.from_shard_id, given.provider = ME if to == OTHER else OTHER, provider
    return given


PROPOSED, ADOPTED = pb.OwnershipTransfer.PHASE_PROPOSED, pb.OwnershipTransfer.PHASE_ADOPTED


async def bound(cluster: SyntheticOperator, *rows: Row, machines: int) -> list[str]:
    cluster.want(rows)
    await cluster.send_rollup()
    await cluster.until(lambda heard: len(heard.configured) == machines, PATIENCE)
    return cluster.heard.configured


async def test_a_stale_term_is_not_listened_to_after_a_restart(tmp_path: Path) -> None:
    async with probed(tmp_path) as (shard, coordinator):
        coordinator.table(7)
        await shard.owns(A0, A1)
        # A coordinator that was replaced still answers and instructs, under its lower term.
        coordinator.answer.Clear()
        coordinator.answer.coordinator_term = 4
        await shard.restart()
        async with operator(shard.address, "c") as cluster:
            await bound(cluster, Row(pods=2, unit=POD, priority=10), machines=2)
            asked = pb.CrossShardDrain(transfer_id="d", preemptor_priority=1000)
            asked.selector.instance_type, asked.selector.count = "m.four", 1
            coordinator.answer.instructions.add(instruction_id="drain/d", coordinator_term=4, cross_shard_drain=asked)
            for _ in range(3):
                await coordinator.heard()
            assert len(cluster.heard.configured) == 2 and not cluster.heard.reclaims


async def test_a_relabelled_machine_keeps_its_owner(tmp_path: Path) -> None:
    async with probed(tmp_path) as (shard, coordinator):
        coordinator.table(7)
        await shard.owns(A0, A1)
        shard.relabel(a="b", b="a")
        await coordinator.heard()
        coordinator.table(8)
        await shard.owns(A0, A1)
        await shard.restart()
        await shard.owns(A0, A1)


async def test_a_released_transfer_that_is_called_off_gives_its_machine_back(tmp_path: Path) -> None:
    async with probed(tmp_path) as (shard, coordinator):
        coordinator.table(7, moving("t", PROPOSED, OTHER))
        await shard.owns(A0, A1)
        asked = pb.TransferOwnership(from_shard_id=ME, to_shard_id=OTHER, transfer_id="t")
        asked.selector.instance_type, asked.selector.zone, asked.selector.count = "m.four", "z", 1
        answer = await coordinator.instruct("transfer/t", transfer_ownership=asked)
        assert len(answer.machine_ids) == 1
        await shard.owns(*{A0, A1} - set(answer.machine_ids))
        coordinator.table(8)
        await shard.owns(A0, A1)


async def test_a_binding_counts_without_a_table(tmp_path: Path) -> None:
    async with probed(tmp_path) as (shard, coordinator):
        coordinator.answer.bindings.add(cluster_id="c", shard_id=OTHER, shard_address="127.0.0.1:1")
        domain = pb.AssignDomain(topology_key=SITE, topology_value="a")
        await coordinator.instruct("assign/1", assign_domain=domain)
        await shard.owns(A0, A1)
        async with operator(shard.address, "c", capabilities=REFERENCE) as bound_elsewhere:
            bound_elsewhere.want([Row(pods=1, unit=POD, priority=100)])
            await bound_elsewhere.send_rollup()
            # Another cluster is served meanwhile, so there was time to serve this one.
            async with operator(shard.address, "here") as here:
                await bound(here, Row(pods=1, unit=POD, priority=100), machines=1)
            await coordinator.heard()
            assert not bound_elsewhere.heard.configured


async def test_machines_asked_for_by_name_are_given(tmp_path: Path) -> None:
    async with probed(tmp_path) as (shard, coordinator):
        coordinator.table(7, moving("t", PROPOSED, OTHER, A1))
        await shard.owns(A0, A1)
        asked = pb.TransferOwnership(from_shard_id=ME, to_shard_id=OTHER, transfer_id="t", machine_ids=[A1])
        answer = await coordinator.instruct("transfer/t", transfer_ownership=asked)
        assert list(answer.machine_ids) == [A1]
        await shard.owns(A0)


async def test_slots_asked_for_by_name_are_given(tmp_path: Path) -> None:
    async with probed(tmp_path) as (shard, coordinator):
        shard.relabel(slot="a", b="b")
        coordinator.table(7, moving("t", PROPOSED, OTHER, "slot-z-0001"))
        await shard.owns("slot-z-0000", "slot-z-0001")
        asked = pb.ReassignSpeculative(transfer_id="t", machine_ids=["slot-z-0001"])
        answer = await coordinator.instruct("transfer/t", reassign_speculative=asked)
        assert list(answer.machine_ids) == ["slot-z-0001"]
        await shard.owns("slot-z-0000")


async def test_the_provider_of_a_transfer_counts(tmp_path: Path) -> None:
    async with probed(tmp_path) as (shard, coordinator):
        coordinator.table(7, moving("t", ADOPTED, OTHER, A0, provider="another"))
        await shard.owns(A0, A1)


async def test_domains_assigned_one_by_one_survive_a_restart(tmp_path: Path) -> None:
    async with probed(tmp_path) as (shard, coordinator):
        domain = pb.AssignDomain(topology_key=SITE, topology_value="a")
        await coordinator.instruct("assign/1", assign_domain=domain)
        await shard.owns(A0, A1)
        await shard.restart()
        await shard.owns(A0, A1)
        more = pb.AssignDomain(topology_key=SITE, topology_value="b")
        await coordinator.instruct("assign/2", assign_domain=more)
        await shard.owns(A0, A1, B0, B1)


async def test_what_was_drained_for_another_shard_stays_free_across_a_restart(tmp_path: Path) -> None:
    async with probed(tmp_path) as (shard, coordinator):
        coordinator.table(7)
        await shard.owns(A0, A1)
        row = Row(pods=2, unit=POD, priority=10)
        async with operator(shard.address, "c") as cluster:
            await bound(cluster, row, machines=2)
            asked = pb.CrossShardDrain(transfer_id="d", preemptor_priority=1000)
            asked.selector.instance_type, asked.selector.count = "m.four", 1
            answer = await coordinator.instruct("drain/d", cross_shard_drain=asked)
            assert len(answer.machine_ids) == 1
            await cluster.until(lambda heard: len(heard.configured) == 1, PATIENCE)
        await shard.restart()
        async with operator(shard.address, "c") as cluster:
            cluster.want([row])
            await cluster.send_rollup()
            await cluster.until(lambda heard: len(heard.acks) >= 2, PATIENCE)
            for _ in range(3):
                await coordinator.heard()
            assert answer.machine_ids[0] not in cluster.heard.configured


async def test_victims_are_judged_by_who_uses_them_now(tmp_path: Path) -> None:
    async with probed(tmp_path) as (shard, coordinator):
        coordinator.table(7)
        await shard.owns(A0, A1)
        async with operator(shard.address, "c") as cluster:
            await bound(cluster, Row(pods=2, unit=POD, priority=10), machines=2)
            # Who they were bound for is gone; something that matters more lives on them since.
            await bound(cluster, Row(pods=2, unit=POD, priority=900), machines=2)
            await coordinator.heard()
            asked = pb.CrossShardDrain(transfer_id="d", preemptor_priority=800)
            asked.selector.instance_type, asked.selector.count = "m.four", 2
            answer = await coordinator.instruct("drain/d", cross_shard_drain=asked)
            assert not answer.machine_ids
            await coordinator.heard()
            assert len(cluster.heard.configured) == 2
