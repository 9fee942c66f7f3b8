"""Durability: what a provider acknowledged before kill -9 it still knows after the restart.

The runner boots the provider on an empty state, lets `prepare` make history, kills it without warning, boots it again
on the same state and then asks these questions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from bigfleet.provider.conformance.config import seconds
from bigfleet.provider.conformance.registry import Family, Lane
from bigfleet.provider.conformance.reply import Code, Reply, Token
from bigfleet.provider.conformance.states import TRANSITIONAL, State, state_name
from bigfleet.provider.conformance.subject import Subject, expect_bound
from bigfleet.provider.conformance.trial import Trial
from bigfleet.provider.conformance.verdicts import Breach, Skip, SkipKind

DURABILITY = Family("Durability / Restart Recovery", Lane.DURABLE, ("durable",))

_CLUSTER = "durable-cluster"
_MAP = {"bigfleet.lucy.sh/assigned-priority": "900", "bigfleet.lucy.sh/assigned-group": "rack\x00gang"}


@dataclass(slots=True)
class History:
    """What was true when the provider was killed."""

    fenced_machine: str = ""
    fence: Token = field(default_factory=Token)
    bound_machine: str = ""
    bound_cluster: str = _CLUSTER
    configure_id: str = ""
    inventory: dict[str, State] = field(default_factory=dict)
    operation_ids: frozenset[str] = frozenset()
    last_machine: str = ""
    last_fence: Token = field(default_factory=Token)
    # Machines at rest in the goal of their last operation → its kind and id.
    rested: dict[str, tuple[str, str]] = field(default_factory=dict)


async def prepare(t: Trial) -> History:
    """Make history worth remembering; the caller kills the provider right after this returns."""
    cluster = t.config.cluster if t.config.cluster != "conformance-a" else _CLUSTER
    fenced, bound = await t.borrow(State.SPECULATIVE), await t.borrow(State.SPECULATIVE)
    history = History(fenced.id, t.shard("durA").at(3, 7), bound.id, cluster)
    await fenced.to_idle(history.fence)
    await bound.to_idle()
    history.configure_id = (await bound.to_configured(cluster=cluster, metadata=_MAP)).operation_id
    history.rested = {i: kept async for i, kept in _rested(t)}
    last = await t.borrow(State.SPECULATIVE)
    history.inventory = {m.id: State(m.state) for m in (await t.listing()).machines if m.id != last.id}
    # The very last thing before the kill is an ack: whatever is written lazily is lost here.
    history.last_machine, history.last_fence = last.id, t.shard("durLast").at(1, 1)
    (await last.create(history.last_fence)).accepted()
    history.operation_ids = frozenset(t.shared["operation-ids"])
    return history


async def _rested(t: Trial) -> AsyncIterator[tuple[str, tuple[str, str]]]:
    """A machine each that was created, drained and deleted, with the id of that operation."""
    created, drained = await t.borrow(State.SPECULATIVE), await t.borrow(State.SPECULATIVE)
    yield created.id, ("create", (await created.to_idle()).operation_id)
    await drained.to_idle()
    await drained.to_configured()
    yield drained.id, ("drain", (await drained.to_drained()).operation_id)
    if t.capabilities.delete:
        deleted = await t.borrow(State.SPECULATIVE)
        await deleted.to_idle()
        yield deleted.id, ("delete", (await deleted.to_deleted()).operation_id)


@dataclass(frozen=True, slots=True)
class Repeated:
    """An operation of before the restart, asked for again after it."""

    machine: str
    kind: str
    operation_id: str
    reply: Reply
    moved: bool


async def repeat(t: Trial, history: History) -> list[Repeated]:
    """Ask again for what was done before the kill; the caller does so before anybody else touches the machines."""
    made = []
    for machine_id, (kind, operation_id) in history.rested.items():
        m = Subject(t, machine_id)
        before = (await m.get()).state
        reply: Reply = await getattr(m, kind)()
        made.append(Repeated(machine_id, kind, operation_id, reply, (await m.get()).state != before))
    return made


@DURABILITY.behaviour("B1001", "FenceMarksSurviveRestart", slots=0)
async def fence_marks_survive_restart(t: Trial) -> None:
    """Marks are durable: a token accepted before the kill is stale after it. Losing them lets zombies back in."""
    h = _history(t)
    (await t.create(h.fenced_machine, h.fence)).fenced("it was accepted before the restart")


@DURABILITY.behaviour("B1002", "OperationIdSurvivesRestart", slots=0)
async def operation_id_survives_restart(t: Trial) -> None:
    """A retry across the restart gets the operation id of before, so that no host is provisioned twice."""
    h = _history(t)
    reply = (await t.configure(h.bound_machine, cluster=h.bound_cluster, metadata=_MAP)).accepted()
    if reply.operation_id != h.configure_id:
        raise reply.breach(f"operation id {reply.operation_id!r}; before the restart it was {h.configure_id!r}")


@DURABILITY.behaviour("B1003", "BindingSurvivesRestart", slots=0)
async def binding_survives_restart(t: Trial) -> None:
    """Cluster and metadata are durable, byte for byte: shards rebuild all they know about bindings from them."""
    h = _history(t)
    expect_bound(await Subject(t, h.bound_machine).get(), h.bound_cluster, _MAP)


@DURABILITY.behaviour("B1004", "InventorySurvivesRestart", slots=0)
async def inventory_survives_restart(t: Trial) -> None:
    """The inventory after the restart is the inventory of before: no machine lost, none added, every state the same."""
    h = _history(t)
    now: dict[str, State] = t.shared["inventory-after-restart"]
    lost = [i for i in h.inventory if i not in now]
    added = [i for i in now if i not in h.inventory and i != h.last_machine]
    moved = [
        f"{i} {h.inventory[i].name}→{state_name(now[i])}" for i in h.inventory if i in now and now[i] != h.inventory[i]
    ]
    t.require(
        not (lost or added or moved),
        f"after the restart {len(lost)} machines are lost {lost[:3]}, {len(added)} new {added[:3]}, "
        f"{len(moved)} elsewhere {moved[:3]}",
    )


@DURABILITY.behaviour("B1005", "CountersNeverGoBack", slots=1)
async def counters_never_go_back(t: Trial) -> None:
    """Revisions work after the restart, and a fresh operation gets an id never handed out before."""
    revision = (await t.listing()).revision
    t.require(bool(revision) or not t.capabilities.since_revision, "the revision is empty after the restart")
    reply = await t.machine.to_idle()
    if reply.operation_id in _history(t).operation_ids:
        raise reply.breach(f"operation id {reply.operation_id!r} was already used before the restart")


@DURABILITY.behaviour("B1006", "InterruptedTransitionsSettle", slots=0, exclusive=True)
async def interrupted_transitions_settle(t: Trial) -> None:
    """No machine hangs in a transition the restart interrupted: it is taken up again or FAILED with a diagnosis.

    Strong form, where a blocking Configure can be provoked: killed while CONFIGURING, the machine is FAILED with
    last_error after the restart (at the latest when its timeout passes), never silently Idle again.
    """
    deadline = time.monotonic() + max(t.limits.create, t.limits.configure)
    while True:
        hanging = [m.id for m in (await t.listing(sorted(TRANSITIONAL))).machines]
        if not hanging:
            break
        if time.monotonic() > deadline:
            raise Breach(f"after the restart {hanging[:3]} still hang in a transition")
        await asyncio.sleep(t.limits.poll)
    fault_map = t.config.fault_map()
    if fault_map is None or fault_map.configure_timeout is None or not fault_map.configure_timeout.cluster:
        t.note = "weak form only: no faults.configure_timeout cluster to interrupt a Configure with"
        return
    m = await t.borrow(State.IDLE)
    (await m.configure(cluster=fault_map.configure_timeout.cluster)).accepted()
    machine = await m.until({State.CONFIGURING}, 2.0)
    m.expect_state(machine, State.CONFIGURING)
    await t.kill_and_restart()
    machine = await m.until({State.FAILED}, t.limits.configure + seconds(fault_map.timeout))
    m.expect_state(machine, State.FAILED)
    t.require(bool(machine.last_error), f"{m.id} is FAILED without last_error after the restart")


@DURABILITY.behaviour("B1007", "NewShardAfterRestart", slots=1)
async def new_shard_after_restart(t: Trial) -> None:
    """A shard the provider has never seen is accepted at (1,1) after the restart like on any other day."""
    await t.machine.to_idle(t.shard("durB").at(1, 1))


@DURABILITY.behaviour("B1008", "AckedWriteSurvivesImmediateKill", slots=0)
async def acked_write_survives_immediate_kill(t: Trial) -> None:
    """The ack is a promise: a Create acknowledged a moment before kill -9 is still known after the restart.

    Its token is stale, and the machine is Creating, Idle, or FAILED with a diagnosis; Speculative would mean the
    operation was forgotten and a host may be running that nobody knows.
    """
    h = _history(t)
    reply = await t.create(h.last_machine, h.last_fence)
    reply.coded(Code.FAILED_PRECONDITION)
    machine = await Subject(t, h.last_machine).get()
    t.require(
        machine.state in (State.CREATING, State.IDLE, State.FAILED),
        f"{h.last_machine} is {state_name(machine.state)} although its Create was acknowledged before the kill",
    )
    t.require(machine.state != State.FAILED or bool(machine.last_error), f"{machine.id} is FAILED without last_error")


@DURABILITY.behaviour("B1009", "EveryOperationIsIdempotentAcrossRestart", slots=0)
async def every_operation_is_idempotent_across_restart(t: Trial) -> None:
    """A Create, Drain or Delete repeated after the restart gets the operation id of before, and nothing moves.

    The shard repeats what it is not sure of; a new id would mean a second host, a second drain, a second deletion.
    """
    _history(t)
    for repeated in t.shared["repeated-after-restart"]:
        t.transcript.add(repeated.reply.exchange)
        reply, kind = repeated.reply.accepted(f"its {repeated.kind} was acknowledged before the restart"), repeated.kind
        if reply.operation_id != repeated.operation_id:
            raise reply.breach(
                f"{kind}: operation id {reply.operation_id!r}; before the restart it was {repeated.operation_id!r}"
            )
        t.require(not repeated.moved, f"{repeated.machine} moved although its {kind} was only repeated")


def _history(t: Trial) -> History:
    history = t.shared.get("history")
    if not isinstance(history, History):
        raise Skip("the provider was not restarted: no start command is configured", SkipKind.NOT_CONFIGURED)
    return history
