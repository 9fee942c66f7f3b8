"""Attacks by and on providers: liars that want a certificate, and a kit that is killed in the middle of its work."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import grpc
import yaml

from bigfleet.wire import provider_pb2 as pb
from bigfleet.wire import provider_pb2_grpc as rpc
from tools.attacks.cloud import CONFIGURED, DRAINING, IDLE, cloud
from tools.attacks.cluster import clusters, row
from tools.attacks.stage import Outcome, Stage, came, running
from tools.processes import Program, free_address

HERE = Path(__file__).resolve()
LIARS = HERE.parents[2] / "tests" / "liars" / "honest.py"
NEW_LIARS = (
    "completion-without-revision",
    "only-configure-is-remembered",
    "delete-forgets-fences",
    "cursor-skips-after-deleted-page-end",
    "filter-with-cursor-is-empty",
    "blob-in-label-after-delete",
)
PROFILES = ["core", "cloud", "spot", "fault", "durable"]


async def liars(stage: Stage) -> Outcome:
    """Six providers that lie in one place each ask the tree's own suite for a certificate."""
    slots = asyncio.Semaphore(2)

    async def judged(liar: str) -> tuple[str, int, str]:
        async with slots:
            return (liar, *await asyncio.to_thread(_judged, stage, liar))

    found = await asyncio.gather(*(judged(liar) for liar in ("", *NEW_LIARS)))
    honest = found[0][1] == 0
    certified = [liar for liar, code, _ in found[1:] if code == 0]
    broken = [f"{liar}: {said[-200:]}" for liar, code, said in found if code not in (0, 1)]
    told = f"{len(certified)} of {len(NEW_LIARS)} liars certified" + (f" ({', '.join(certified)})" if certified else "")
    return Outcome(honest and not certified and not broken, "; ".join([told, *broken]))


def _judged(stage: Stage, liar: str) -> tuple[int, str]:
    command = f"{sys.executable} {LIARS} --listen {{addr}} --state {{state}} --slots 40 --timeout-seconds 1.2"
    settings = {
        "start": command + (f" --liar {liar}" if liar else ""),
        "profiles": PROFILES,
        "faults": "reference",
        "timing": {"create": 3, "configure": 3, "drain": 3, "delete": 3},
    }
    config = stage.folder / f"{liar or 'honest'}.yaml"
    config.write_text(yaml.safe_dump(settings))
    out = str(stage.folder / f"out-{liar}")
    return stage.say("run", "--config", str(config), "--out", out, command="bigfleet-conformance", seconds=300)


class _Kit:
    """A provider of the tree's kit as a process, on one address over any number of lives."""

    def __init__(self, stage: Stage, *flags: str) -> None:
        self.address = free_address()
        self.diary, self.ready = stage.folder / "diary", stage.folder / "ready"
        argv = [sys.executable, str(HERE.parent / "author.py"), "--addr", self.address]
        argv += ["--metrics-addr", "", "--state", str(stage.folder / "state.db"), "--log-format", "json", *flags]
        environment = {**stage.environment(), "DIARY": str(self.diary), "READY": str(self.ready)}
        self.program = Program("kit", argv, stage.folder, environment)
        stage.programs.append(self.program)

    async def call(self, method: str, request: Any) -> Any:
        async with grpc.aio.insecure_channel(self.address) as channel:
            return await getattr(rpc.CapacityProviderStub(channel), method)(request, wait_for_ready=True, timeout=30)

    async def state(self) -> int:
        try:
            return int((await self.call("Get", pb.MachineRef(id=self.machine))).state)
        except grpc.aio.AioRpcError:
            return 0

    async def bind(self, *, ready: bool) -> None:
        self.program.start()
        self.machine = (await self.call("List", pb.ListFilter())).machines[0].id
        await self.call("Create", pb.CreateRequest(machine_id=self.machine))
        assert await came(lambda: self._is(IDLE), 20)
        if ready:
            self.ready.touch()
        request = pb.ConfigureRequest(machine_id=self.machine, cluster_id="c", bootstrap_blob=b"#!")
        await self.call("Configure", request)
        if ready:
            assert await came(lambda: self._is(CONFIGURED), 20)

    async def _is(self, state: int) -> bool:
        return await self.state() == state

    def noted(self, what: str) -> list[dict[str, Any]]:
        lines = self.diary.read_text().splitlines() if self.diary.exists() else []
        return [entry for entry in map(json.loads, lines) if entry["what"] == what]


async def kit_in_a_drain(stage: Stage) -> Outcome:
    """A provider of the kit is killed five seconds into a drain with twelve seconds of grace."""
    made = _Kit(stage)
    await made.bind(ready=True)
    began = time.monotonic()
    await made.call("Drain", pb.DrainRequest(machine_id=made.machine, grace_period_seconds=12))
    await asyncio.sleep(5)
    made.program.kill()
    made.program.start()
    idle = await came(lambda: made._is(IDLE), 40)
    took, ended = time.monotonic() - began, await made.state()
    graces = [entry["grace"] for entry in made.noted("drain")]
    fine = idle and took < 22 and len(graces) == 2 and 4 <= graces[1] <= 8
    how = f"drained after {took:.0f} s" if idle else f"state {ended} in the end"
    return Outcome(fine, f"{how}, graces given {graces}")


async def kit_waits_for_a_node(stage: Stage) -> Outcome:
    """A provider of the kit is killed while a node that has its blob is coming up."""
    made = _Kit(stage)
    await made.bind(ready=False)
    await came(lambda: made.noted("configure"), 10)
    await asyncio.sleep(2)
    made.program.kill()
    made.program.start()
    await asyncio.sleep(4)
    made.ready.touch()
    up = await came(lambda: made._is(CONFIGURED), 30)
    blobs = len(made.noted("configure"))
    how = "the node is waited for" if up else f"state {await made.state()} in the end"
    return Outcome(up and blobs == 1, f"{how}, blob delivered {blobs} times")


async def faults_inside(stage: Stage) -> Outcome:
    """The fault lane makes a node's set-up fail: does the author's own clean-up run, as it would in earnest?"""
    made = _Kit(stage, "--enable-faults")
    made.program.start()
    made.ready.touch()
    slots = (await made.call("List", pb.ListFilter())).machines
    made.machine = next(each.id for each in slots if not each.id.startswith("faultcreate"))
    await made.call("Create", pb.CreateRequest(machine_id=made.machine))
    assert await came(lambda: made._is(IDLE), 20)
    request = pb.ConfigureRequest(machine_id=made.machine, cluster_id="fault-error", bootstrap_blob=b"#!")
    await made.call("Configure", request)
    failed = await came(lambda: made._is(pb.MACHINE_STATE_FAILED), 20)
    cleaned = len(made.noted("clean up"))
    return Outcome(
        failed and cleaned == 1,
        f"{'failed' if failed else f'state {await made.state()}'}, the author's clean-up ran {cleaned} times",
    )


async def kit_words(stage: Stage) -> Outcome:
    """What a provider's author can say: sold out, interrupted soon; and what a tool may ask."""
    words = (
        "from bigfleet.provider import kit; print(hasattr(kit, 'SoldOut'), hasattr(kit.Handle, 'interruption_notice'))"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", words, stdout=asyncio.subprocess.PIPE, env={**os.environ, **stage.environment()}
    )
    said = (await process.communicate())[0].decode().split()
    made = _Kit(stage)
    await made.bind(ready=True)
    async with grpc.aio.insecure_channel(made.address) as channel:
        asked = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")()
        try:
            await asked.write(b"\x3a\x01*")
            reflected = b"CapacityProvider" in await asked.read()
        except grpc.aio.AioRpcError:
            reflected = False
    return Outcome(
        said == ["True", "True"] and reflected,
        f"SoldOut {said[:1]}, interruption notice {said[1:]}, reflection {reflected}",
    )


async def a_coming_interruption(stage: Stage) -> Outcome:
    """A cloud announces that it takes a host in 40 seconds."""
    async with cloud() as made:
        made.offer("m", 3)
        async with running(stage, made) as shard, clusters(shard.address, ["c"]) as (cluster,):
            await cluster.want(row(1))
            assert await came(lambda: cluster.configured, 60), "a machine"
            taken = cluster.configured[0]
            made.machines[taken].interruption_at_unix_nanos = time.time_ns() + 40 * 10**9
            left = await came(lambda: made.machines[taken].state in (DRAINING, IDLE), 35)
            replaced = await came(lambda: [each for each in cluster.configured if each != taken], 20)
    return Outcome(
        left and replaced,
        f"{'drained before' if left else 'not drained'}, {'replaced' if replaced else 'not replaced'}",
    )


ATTACKS = {
    "six new liars": liars,
    "kit killed in a drain": kit_in_a_drain,
    "kit killed while a node comes up": kit_waits_for_a_node,
    "words of an author": kit_words,
    "faults inside an author's code": faults_inside,
    "an interruption is announced": a_coming_interruption,
}
