"""Hostile requests over real gRPC: whatever arrives, the answer is a status of the contract and the fleet is sound."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bigfleet.wire import provider_pb2 as pb
from tests.kit.world import MemoryProvider, failure, running

Code = grpc.StatusCode
CONTRACT = {
    Code.OK,
    Code.INVALID_ARGUMENT,
    Code.NOT_FOUND,
    Code.FAILED_PRECONDITION,
    Code.UNIMPLEMENTED,
    Code.INTERNAL,
    Code.RESOURCE_EXHAUSTED,
}
MEGABYTE = "x" * (1 << 20)
int64 = st.one_of(st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)]), st.integers(-(2**63), 2**63 - 1))
text = st.one_of(
    st.sampled_from(["", "m000", "m001", "ghost", "\0", "m000\0", "\x1b[31m", MEGABYTE, "�", "🦀" * 50]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)
token = {"shard_id": text, "shard_epoch": int64, "sequence_number": int64}
requests = st.one_of(
    st.builds(pb.CreateRequest, machine_id=text, **token),
    st.builds(
        pb.ConfigureRequest,
        machine_id=text,
        cluster_id=text,
        bootstrap_blob=st.binary(max_size=200),
        shard_metadata=st.dictionaries(text, text, max_size=3),
        **token,
    ),
    st.builds(pb.DrainRequest, machine_id=text, grace_period_seconds=int64, **token),
    st.builds(pb.DeleteRequest, machine_id=text, **token),
    st.builds(pb.MachineRef, id=text),
    st.builds(
        pb.ListFilter,
        states=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4),
        max_results=st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31)]),
        since_revision=st.one_of(st.binary(max_size=100), st.just(b"\xff" * 100_000)),
    ),
)
METHOD = {
    "CreateRequest": "Create",
    "ConfigureRequest": "Configure",
    "DrainRequest": "Drain",
    "DeleteRequest": "Delete",
    "MachineRef": "Get",
    "ListFilter": "List",
}


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(batch=st.lists(requests, min_size=1, max_size=25))
def test_every_answer_is_a_status_of_the_contract(batch: list[Any]) -> None:
    asyncio.run(_send(batch))


async def _send(batch: list[Any]) -> None:
    async with running(MemoryProvider()) as world:
        for request in batch:
            error = await failure(getattr(world.stub, METHOD[type(request).__name__])(request))
            assert error.code() in CONTRACT, error
            assert "Traceback" not in error.details() and len(error.details()) < 1000
            assert "the server's log says why" not in error.details(), "an unforeseen exception"
        world.process.runtime.core.validate()
        listed = await world.stub.List(pb.ListFilter())
        assert len(listed.machines) == 8


async def test_wrong_fences_are_fenced_whatever_they_ask(tmp_path: Path) -> None:
    stale = {"shard_id": "s", "shard_epoch": 1, "sequence_number": 1}
    async with running(MemoryProvider(), state=str(tmp_path / "s.db")) as world:
        for machine_id in ("m000", "ghost\0"):
            await failure(
                world.stub.Create(pb.CreateRequest(machine_id=machine_id, **(stale | {"shard_epoch": 2**63 - 1})))
            )
            for request in (
                pb.CreateRequest(machine_id=machine_id, **stale),
                pb.ConfigureRequest(machine_id=machine_id, cluster_id="c", **stale),
                pb.DrainRequest(machine_id=machine_id, **stale),
                pb.DeleteRequest(machine_id=machine_id, **stale),
            ):
                error = await failure(getattr(world.stub, METHOD[type(request).__name__])(request))
                assert error.code() == Code.FAILED_PRECONDITION


async def test_bytes_that_are_no_message_are_an_error_and_not_a_crash() -> None:
    async with running(MemoryProvider()) as world:
        async with grpc.aio.insecure_channel(world.process.address) as raw:
            for method in METHOD.values():
                call = raw.unary_unary(f"/bigfleet.v1alpha1.CapacityProvider/{method}")
                assert (await failure(call(b"\xff\xff\xff\x00junk"))).code() != Code.OK
        assert len((await world.stub.List(pb.ListFilter())).machines) == 8
