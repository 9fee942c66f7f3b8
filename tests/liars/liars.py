"""Providers that break the contract in exactly one place, each named after its lie.

`LIARS` maps the name to the class and `CAUGHT_BY` to the behaviour that names the fault. Everything a liar does not
override it inherits from the honest provider.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
from honest import (
    CONFIGURED,
    CREATING,
    DRAINING,
    EDGES,
    FAILED,
    IDLE,
    SPECULATIVE,
    HonestProvider,
    Refused,
)

from bigfleet.wire import provider_pb2 as pb

LIARS: dict[str, type[HonestProvider]] = {}
CAUGHT_BY: dict[str, str] = {}


def caught_by(behaviour: str) -> Any:
    """Register the class under its name in kebab case."""

    def enter(kind: type[HonestProvider]) -> type[HonestProvider]:
        name = "".join(f"-{c.lower()}" if c.isupper() else c for c in kind.__name__).lstrip("-")
        LIARS[name] = kind
        CAUGHT_BY[name] = behaviour
        return kind

    return enter


# --- fencing -----------------------------------------------------------------------------------------------------


@caught_by("B306")
class FenceAfterIdempotency(HonestProvider):
    """A zombie gets the cached operation id."""

    def mutate(self, kind: str, request: Any) -> pb.TransitionAck:
        if request.machine_id in self.memory.machines and (ack := self.repeated(kind, request)) is not None:
            return ack
        return super().mutate(kind, request)


@caught_by("B301")
class FenceAfterExistence(HonestProvider):
    """A zombie learns which machines exist."""

    def check_fence(self, request: Any) -> None:
        if request.machine_id not in self.memory.machines:
            raise Refused(grpc.StatusCode.NOT_FOUND, "no such machine")
        super().check_fence(request)


@caught_by("B302")
class FencePerShard(HonestProvider):
    """One mark per shard: a shard working on two machines fences itself."""

    def fence_key(self, request: Any) -> str:
        return str(request.shard_id)


@caught_by("B303")
class EqualTokenPasses(HonestProvider):
    """A replayed token is as good as new."""

    def newer(self, token: tuple[int, int], mark: tuple[int, int]) -> bool:
        return token >= mark


@caught_by("B310")
class EpochIgnored(HonestProvider):
    """Only the sequence counts, so a restarted shard is locked out and its ghost is not."""

    def newer(self, token: tuple[int, int], mark: tuple[int, int]) -> bool:
        return token[1] > mark[1]


@caught_by("B311")
class MarkOnlyOnSuccess(HonestProvider):
    """A refused call leaves the mark where it was."""

    def mutate(self, kind: str, request: Any) -> pb.TransitionAck:
        before = dict(self.memory.fences)
        try:
            return super().mutate(kind, request)
        except Refused:
            self.memory.fences = before
            raise


# --- idempotency and transitions ---------------------------------------------------------------------------------


@caught_by("B206")
class FreshIdPerRetry(HonestProvider):
    """Every retry looks like a new operation."""

    def repeated(self, kind: str, request: Any) -> pb.TransitionAck | None:
        ack = super().repeated(kind, request)
        if ack is not None:
            ack.operation_id = self.mint(kind, request.machine_id)
        return ack


@caught_by("B201")
class FailedPreconditionForBadTransition(HonestProvider):
    """An out-of-position call pages the on-call as a zombie incident."""

    def check_position(self, kind: str, request: Any) -> None:
        try:
            super().check_position(kind, request)
        except Refused as refused:
            raise Refused(grpc.StatusCode.FAILED_PRECONDITION, str(refused)) from refused


@caught_by("B207")
class CreatesUnknownMachines(HonestProvider):
    """Create on any id conjures the machine up."""

    def mutate(self, kind: str, request: Any) -> pb.TransitionAck:
        if kind == "create" and request.machine_id and request.machine_id not in self.memory.machines:
            self.seed(0)
            self.memory.machines[request.machine_id] = dict(self.memory.machines["slot-00000"])
        return super().mutate(kind, request)


@caught_by("B216")
class ReconfiguresSilently(HonestProvider):
    """A Configure for another cluster is answered like a retry."""

    def repeated(self, kind: str, request: Any) -> pb.TransitionAck | None:
        if kind == "configure":
            request.cluster_id = self.memory.machines[request.machine_id]["cluster"]
        return super().repeated(kind, request)


@caught_by("B103")
class WrongTransitionalState(HonestProvider):
    """Configuring looks like creating."""

    transition_seconds = 0.15

    def record(self, machine_id: str) -> pb.Machine:
        machine = super().record(machine_id)
        if machine.state == EDGES["configure"][1]:
            machine.state = CREATING
        return machine


@caught_by("B408")
class UnboundAck(HonestProvider):
    """The ack of a Configure shows the machine from before it."""

    def accept(self, kind: str, request: Any) -> pb.TransitionAck:
        ack = super().accept(kind, request)
        ack.machine.ClearField("cluster")
        return ack

    def repeated(self, kind: str, request: Any) -> pb.TransitionAck | None:
        ack = super().repeated(kind, request)
        if ack is not None:
            ack.machine.ClearField("cluster")
        return ack


@caught_by("B219")
class CloudWithoutDelete(HonestProvider):
    """Sells on-demand machines that cannot be given back."""

    def mutate(self, kind: str, request: Any) -> pb.TransitionAck:
        if kind == "delete":
            raise Refused(grpc.StatusCode.UNIMPLEMENTED, "no delete")
        return super().mutate(kind, request)


# --- bindings and fields -----------------------------------------------------------------------------------------


@caught_by("B502")
class MetadataSurvivesDrain(HonestProvider):
    """The previous tenant's attribution stays on the machine."""

    def finish(self, kind: str, machine_id: str) -> None:
        kept = self.memory.machines[machine_id]["metadata"]
        super().finish(kind, machine_id)
        if kind == "drain":
            self.memory.machines[machine_id]["metadata"] = kept


@caught_by("B106")
class ClusterNotCleared(HonestProvider):
    """An Idle machine still claims to belong to a cluster."""

    def finish(self, kind: str, machine_id: str) -> None:
        kept = self.memory.machines[machine_id]["cluster"]
        super().finish(kind, machine_id)
        if kind == "drain":
            self.memory.machines[machine_id]["cluster"] = kept


@caught_by("B110")
class BindingClearedWhileDraining(HonestProvider):
    """The binding is forgotten while pods are still leaving."""

    transition_seconds = 0.1

    def record(self, machine_id: str) -> pb.Machine:
        machine = super().record(machine_id)
        if machine.state == DRAINING:
            machine.ClearField("cluster")
            machine.ClearField("shard_metadata")
        return machine


@caught_by("B503")
class TruncatedMetadata(HonestProvider):
    """Long values are cut to fit a column."""

    def keep_metadata(self, metadata: dict[str, str]) -> dict[str, str]:
        return {key: value[:1024] for key, value in metadata.items()}


@caught_by("B501")
class NulEndsTheValue(HonestProvider):
    """A C string somewhere below."""

    def keep_metadata(self, metadata: dict[str, str]) -> dict[str, str]:
        return {key: value.split("\x00")[0] for key, value in metadata.items()}


@caught_by("B112")
class LabelsChangeOnCreate(HonestProvider):
    """The rack that was promised is not the rack that was delivered."""

    def finish(self, kind: str, machine_id: str) -> None:
        super().finish(kind, machine_id)
        if kind == "create":
            self.memory.machines[machine_id]["labels"]["rack"] = "somewhere-else"


@caught_by("B802")
class SpotWithoutRisk(HonestProvider):
    """Spot machines as safe as any other, at a quarter of the price."""

    def spot_risk(self) -> float:
        return 0.0


@caught_by("B807")
class DeleteLosesTheId(HonestProvider):
    """A deleted slot is gone instead of back in the quota."""

    def finish(self, kind: str, machine_id: str) -> None:
        super().finish(kind, machine_id)
        if kind == "delete":
            del self.memory.machines[machine_id]
            self.memory.machines[f"{machine_id}-again"] = {
                "state": SPECULATIVE, "spot": False, "zone": "zone-a", "labels": {}, "host": "", "cluster": "",
                "metadata": {}, "error": "", "revision": self.memory.revision,
            }  # fmt: skip


@caught_by("B1301")
class BlobInError(HonestProvider):
    """The refusal quotes the join secret."""

    def check_position(self, kind: str, request: Any) -> None:
        try:
            super().check_position(kind, request)
        except Refused as refused:
            blob = getattr(request, "bootstrap_blob", b"").decode("utf-8", "replace")
            raise Refused(refused.code, f"{refused}: could not apply {blob}") from refused


@caught_by("B1304")
class BlobInLog(HonestProvider):
    """Debug output that stayed in."""

    def accept(self, kind: str, request: Any) -> pb.TransitionAck:
        print(kind, request, flush=True)
        return super().accept(kind, request)


# --- listing -----------------------------------------------------------------------------------------------------


@caught_by("B907")
class CursorSkips(HonestProvider):
    """A page's cursor points one record too far."""

    def cursor(self, page: list[tuple[int, str]], capped: bool) -> bytes:
        return str(min(page[-1][0] + 1, self.memory.revision)).encode() if capped else super().cursor(page, capped)


@caught_by("B906")
class GarbageCursorIsAnError(HonestProvider):
    """A cursor from another life is refused instead of answered in full."""

    def parse_cursor(self, cursor: bytes) -> int:
        if cursor and super().parse_cursor(cursor) == 0:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "unknown revision")
        return super().parse_cursor(cursor)


@caught_by("B908")
class ReconcileBumpsRevisions(HonestProvider):
    """Looking at the fleet counts as changing it."""

    def list(self, request: pb.ListFilter) -> pb.MachineList:
        self.bump("slot-00000")
        return super().list(request)


@caught_by("B911")
class StaleListAfterAck(HonestProvider):
    """List answers from a cache that is a moment old."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.cached: dict[bytes, tuple[float, pb.MachineList]] = {}

    def list(self, request: pb.ListFilter) -> pb.MachineList:
        key = request.SerializeToString()
        taken, answer = self.cached.get(key, (0.0, None))
        if answer is None or time.monotonic() - taken > 0.5:
            answer = super().list(request)
            self.cached[key] = (time.monotonic(), answer)
        return answer


@caught_by("B902")
class CapIgnored(HonestProvider):
    """max_results is only a suggestion."""

    def list(self, request: pb.ListFilter) -> pb.MachineList:
        request.max_results = 0
        return super().list(request)


# --- failure -----------------------------------------------------------------------------------------------------


@caught_by("B708")
class ConfiguredBeforeReady(HonestProvider):
    """The virtual machine booted; surely the node will follow."""

    async def work(self, kind: str, machine_id: str) -> None:
        if kind == "configure" and self.memory.machines[machine_id]["cluster"] == "fault-readiness-block":
            await asyncio.sleep(self.transition_seconds)
            self.finish(kind, machine_id)
            return
        await super().work(kind, machine_id)


@caught_by("B701")
class SilentRevert(HonestProvider):
    """A failed Configure goes quietly back to Idle."""

    def fail(self, machine_id: str, why: str) -> None:
        machine = self.memory.machines[machine_id]
        machine["state"], machine["cluster"], machine["metadata"] = IDLE, "", {}
        self.bump(machine_id)


@caught_by("B705")
class FailedCanBeReconfigured(HonestProvider):
    """FAILED is only an opinion."""

    def check_position(self, kind: str, request: Any) -> None:
        if kind == "configure" and self.memory.machines[request.machine_id]["state"] == FAILED:
            return
        super().check_position(kind, request)


@caught_by("B704")
class LateSuccessCounts(HonestProvider):
    """The backend answers after the timeout and the machine rises from the dead."""

    async def work(self, kind: str, machine_id: str) -> None:
        await super().work(kind, machine_id)
        machine = self.memory.machines[machine_id]
        if machine["state"] == FAILED and machine["cluster"] == "fault-slow-ok":
            await asyncio.sleep(0.5)
            machine["state"], machine["error"] = CONFIGURED, ""
            self.bump(machine_id)


@caught_by("B1303")
class BlobInDiagnosis(HonestProvider):
    """last_error quotes the script that failed."""

    def accept(self, kind: str, request: Any) -> pb.TransitionAck:
        self.blob = getattr(request, "bootstrap_blob", b"").decode("utf-8", "replace")
        return super().accept(kind, request)

    def fail(self, machine_id: str, why: str) -> None:
        super().fail(machine_id, f"{why} while running {self.blob}")


@caught_by("B709")
class BlocksWhileTheBackendDoes(HonestProvider):
    """One slow backend call holds up every caller."""

    async def never_ready(self, cluster: str) -> None:
        time.sleep(1.5)  # blocking the loop is the lie


# --- durability --------------------------------------------------------------------------------------------------


@caught_by("B1008")
class LostWriteAfterKill(HonestProvider):
    """State is written when there is time for it."""

    def __init__(self, *args: Any) -> None:
        self.last_save = 0.0
        super().__init__(*args)

    def save(self) -> None:
        if time.monotonic() - self.last_save > 20:
            self.last_save = time.monotonic()
            super().save()


@caught_by("B1001")
class FencesForgotten(HonestProvider):
    """After a restart every zombie is welcome."""

    def recover(self) -> None:
        self.memory.fences.clear()
        super().recover()


@caught_by("B1005")
class CountersRestart(HonestProvider):
    """Operation ids start over with the process."""

    def recover(self) -> None:
        self.memory.next_op = 0
        super().recover()


@caught_by("B1006")
class InterruptedWorkReverts(HonestProvider):
    """What was under way when the power failed never happened."""

    def recover(self) -> None:
        for machine_id, machine in self.memory.machines.items():
            for source, transitional, _ in EDGES.values():
                if machine["state"] == transitional:
                    machine["state"] = source
                    self.bump(machine_id)


@caught_by("B1003")
class BindingsForgotten(HonestProvider):
    """The metadata was never written to disk."""

    def recover(self) -> None:
        for machine in self.memory.machines.values():
            machine["metadata"] = {}
        super().recover()


@caught_by("B1009")
class OnlyConfigureIsRemembered(HonestProvider):
    """Idempotency of Create, Drain and Delete ends with the process."""

    def recover(self) -> None:
        self.memory.ops = {key: op for key, op in self.memory.ops.items() if key.endswith("configure")}
        super().recover()


# --- what the first suite certified ------------------------------------------------------------------------------


@caught_by("B912")
class CompletionWithoutRevision(HonestProvider):
    """The end of a transition is no change, so deltas never tell of it."""

    transition_seconds = 0.15

    def finish(self, kind: str, machine_id: str) -> None:
        before = self.memory.machines[machine_id]["revision"]
        super().finish(kind, machine_id)
        self.memory.machines[machine_id]["revision"] = before


@caught_by("B313")
class DeleteForgetsFences(HonestProvider):
    """A deleted slot is as good as new, for zombies too."""

    def finish(self, kind: str, machine_id: str) -> None:
        super().finish(kind, machine_id)
        if kind == "delete":
            self.memory.fences = {
                key: mark for key, mark in self.memory.fences.items() if not key.endswith(f"\x00{machine_id}")
            }


@caught_by("B913")
class CursorSkipsAfterDeletedPageEnd(HonestProvider):
    """The cursor is the last machine of the page; when that has moved, the next one is stepped over."""

    def list(self, request: pb.ListFilter) -> pb.MachineList:
        since = self.parse_cursor(request.since_revision)
        if since and all(machine["revision"] != since for machine in self.memory.machines.values()):
            later = sorted(m["revision"] for m in self.memory.machines.values() if m["revision"] > since)
            capped = request.max_results > 0
            if later and capped:
                request.since_revision = str(later[0]).encode()
        return super().list(request)


@caught_by("B914")
class FilterWithCursorIsEmpty(HonestProvider):
    """A delta with a state filter says that nothing changed."""

    def list(self, request: pb.ListFilter) -> pb.MachineList:
        listed = super().list(request)
        if request.states and self.parse_cursor(request.since_revision):
            return pb.MachineList(revision=listed.revision)
        return listed


@caught_by("B1305")
class BlobInLabelAfterDelete(HonestProvider):
    """What a host was last bootstrapped with is kept on its slot, for convenience."""

    def __init__(self, *args: Any) -> None:
        self.blobs: dict[str, str] = {}
        super().__init__(*args)

    def accept(self, kind: str, request: Any) -> pb.TransitionAck:
        if kind == "configure":
            self.blobs[request.machine_id] = request.bootstrap_blob.decode("latin-1")
        return super().accept(kind, request)

    def finish(self, kind: str, machine_id: str) -> None:
        super().finish(kind, machine_id)
        if kind == "delete":
            self.memory.machines[machine_id]["labels"]["last-user-data"] = self.blobs.get(machine_id, "")
