"""Transition matrix and errors: what is refused, with which codes, and that a refusal changes nothing."""

from __future__ import annotations

from bigfleet.provider.conformance.registry import Family
from bigfleet.provider.conformance.reply import Code, Token
from bigfleet.provider.conformance.states import State
from bigfleet.provider.conformance.subject import expect_bound, expect_unbound, unimplemented
from bigfleet.provider.conformance.trial import Trial

TRANSITIONS = Family("Transition Matrix / Errors")

_WINDOW = 0.25
_INT64_MAX = 2**63 - 1


@TRANSITIONS.behaviour("B201", "CreateOnConfiguredRejected", start=State.IDLE)
async def create_on_configured_rejected(t: Trial) -> None:
    """Create on a Configured machine is refused, not with FAILED_PRECONDITION, and the binding is untouched."""
    m = t.machine
    await m.to_configured()
    (await m.create()).rejected("the machine is CONFIGURED")
    expect_bound(await m.stays(State.CONFIGURED, _WINDOW), t.cluster)


@TRANSITIONS.behaviour("B202", "ConfigureOnSpeculativeRejected")
async def configure_on_speculative_rejected(t: Trial) -> None:
    """Configure on a Speculative slot is refused, not with FAILED_PRECONDITION, and leaks no cluster or metadata."""
    (await t.machine.configure(metadata={"leak": "1"})).rejected("the machine is SPECULATIVE")
    expect_unbound(await t.machine.stays(State.SPECULATIVE, _WINDOW))


@TRANSITIONS.behaviour("B203", "DrainOnIdleRejected", start=State.IDLE)
async def drain_on_idle_rejected(t: Trial) -> None:
    """Drain on an Idle machine is a no-op if it was drained before, otherwise refused; either way it stays Idle."""
    (await t.machine.drain()).not_fenced().answered()
    await t.machine.stays(State.IDLE, _WINDOW)


@TRANSITIONS.behaviour("B204", "DeleteOutOfPositionRejected", slots=1, profiles=("core", "cloud"))
async def delete_out_of_position_rejected(t: Trial) -> None:
    """Delete does nothing to a Speculative slot and is refused on a Configured machine: drain first.

    UNIMPLEMENTED is fine where Delete is not supported; FAILED_PRECONDITION never is.
    """
    m = t.machine
    (await m.delete()).not_fenced().answered()
    await m.stays(State.SPECULATIVE, _WINDOW)
    await m.to_idle()
    await m.to_configured()
    (await m.delete()).rejected("the machine is CONFIGURED")
    expect_bound(await m.stays(State.CONFIGURED, _WINDOW), t.cluster)


@TRANSITIONS.behaviour("B205", "IdempotentNoOpAtTarget")
async def idempotent_no_op_at_target(t: Trial) -> None:
    """Repeating a call whose target is already reached succeeds and starts nothing.

    Create at Idle stays Idle, Configure with the same arguments at Configured stays Configured, and the ack shows the
    machine where it is.
    """
    m = t.machine
    await m.to_idle()
    (await m.create()).accepted("Create at its target is a no-op")
    await m.stays(State.IDLE, _WINDOW)
    await m.to_configured(metadata={"k": "v"})
    ack = (await m.configure(metadata={"k": "v"})).accepted("Configure at its target is a no-op")
    if ack.snapshot and ack.snapshot.state != State.CONFIGURED:
        raise ack.breach("the ack of a no-op Configure does not show CONFIGURED")
    await m.stays(State.CONFIGURED, _WINDOW)


@TRANSITIONS.behaviour("B206", "IdempotentSameOperationID")
async def idempotent_same_operation_id(t: Trial) -> None:
    """A retry gets the operation id of the first attempt; Create and Configure have different ids."""
    m = t.machine
    created = await m.to_idle()
    t.same_id(created, (await m.create()).accepted(), "repeated Create")
    configured = await m.to_configured()
    t.same_id(configured, (await m.configure()).accepted(), "repeated Configure")
    t.require(
        created.operation_id != configured.operation_id,
        f"Create and Configure share the operation id {created.operation_id!r}",
        "Different transitions have different operation ids.",
    )


@TRANSITIONS.behaviour("B207", "MutateUnknownMachineNotFound", slots=0)
async def mutate_unknown_machine_not_found(t: Trial) -> None:
    """Create, Configure and Drain on an unknown id answer NOT_FOUND; none of them creates the machine."""
    ghost = t.ghost()
    (await t.create(ghost)).coded(Code.NOT_FOUND)
    (await t.configure(ghost)).coded(Code.NOT_FOUND)
    (await t.drain(ghost)).coded(Code.NOT_FOUND)
    (await t.get(ghost)).coded(Code.NOT_FOUND)


@TRANSITIONS.behaviour("B208", "EmptyMachineIDInvalidArgument", slots=0)
async def empty_machine_id_invalid_argument(t: Trial) -> None:
    """Get, Create, Configure and Drain without a machine id answer INVALID_ARGUMENT."""
    (await t.get("")).coded(Code.INVALID_ARGUMENT)
    (await t.create("")).coded(Code.INVALID_ARGUMENT)
    (await t.configure("")).coded(Code.INVALID_ARGUMENT)
    (await t.drain("")).coded(Code.INVALID_ARGUMENT)


@TRANSITIONS.behaviour("B209", "OversizedMetadataEchoOrInvalidArgument", start=State.IDLE)
async def oversized_metadata_echo_or_invalid_argument(t: Trial) -> None:
    """512 metadata keys of 1 KiB are stored verbatim or refused whole with INVALID_ARGUMENT; never truncated."""
    m = t.machine
    metadata = {f"conformance.bulk/{i:03d}": f"{i:04d}" * 256 for i in range(512)}
    reply = (await m.configure(metadata=metadata)).coded(Code.OK, Code.INVALID_ARGUMENT)
    if reply.ok:
        await m.settle(State.CONFIGURED)
        expect_bound(await m.get(), t.cluster, metadata)
        await m.to_drained()
    else:
        under_cap = t.config.metadata_cap >= 512 * 1045
        t.require(not under_cap, "metadata below the documented cap was refused")
        expect_unbound(await m.stays(State.IDLE, _WINDOW))


@TRANSITIONS.behaviour("B210", "NegativeGraceCodeDiscipline", start=State.IDLE)
async def negative_grace_code_discipline(t: Trial) -> None:
    """A negative grace is refused with INVALID_ARGUMENT and the machine stays Configured, or it is taken as zero."""
    m = t.machine
    await m.to_configured()
    reply = (await m.drain(grace=-5)).coded(Code.OK, Code.INVALID_ARGUMENT)
    if reply.ok:
        expect_unbound(await m.settle(State.IDLE, t.limits.drain))
    else:
        expect_bound(await m.stays(State.CONFIGURED, _WINDOW), t.cluster)


@TRANSITIONS.behaviour("B211", "NegativeTokenCodeDiscipline", slots=(1, 3))
async def negative_token_code_discipline(t: Trial) -> None:
    """A negative epoch or sequence is refused with INVALID_ARGUMENT or treated as first contact; never fenced."""
    for i, (epoch, sequence) in enumerate(((-1, 1), (1, -1), (-7, -3))):
        m = t.machines[i % len(t.machines)]
        position = State((await m.get()).state)
        token = Token(t.shard("neg").shard_id, epoch, sequence)
        reply = (await m.create(token)).coded(Code.OK, Code.INVALID_ARGUMENT)
        if reply.ok:
            await m.settle(State.IDLE, t.limits.create)
        else:
            await m.stays(position, _WINDOW)


@TRANSITIONS.behaviour("B212", "Int64MaxTokenHighWaterMark", start=State.IDLE)
async def int64_max_token_high_water_mark(t: Trial) -> None:
    """The largest token int64 can hold is accepted as first contact and becomes a mark like any other.

    Replays at or below it on the same machine are fenced: no overflow, no wrap.
    """
    m, shard = t.machine, t.shard("max")
    await m.to_configured(shard.at(_INT64_MAX, _INT64_MAX))
    expect_bound(await m.get(), t.cluster)
    (await m.configure(shard.at(_INT64_MAX, _INT64_MAX))).fenced()
    (await m.configure(shard.at(_INT64_MAX - 1, _INT64_MAX))).fenced()
    await m.stays(State.CONFIGURED, 0)


@TRANSITIONS.behaviour("B213", "OversizedBootstrapBlob", start=State.IDLE)
async def oversized_bootstrap_blob(t: Trial) -> None:
    """A 3 MiB bootstrap blob is accepted whole or refused with INVALID_ARGUMENT or RESOURCE_EXHAUSTED."""
    m = t.machine
    blob = (t.blob + b"# padding\n" * 16)[:160] * (3 * 1024 * 1024 // 160)
    reply = await m.configure(blob=blob)
    reply.coded(Code.OK, Code.INVALID_ARGUMENT, Code.RESOURCE_EXHAUSTED)
    if reply.ok:
        expect_bound(await m.settle(State.CONFIGURED), t.cluster)
    else:
        expect_unbound(await m.stays(State.IDLE, _WINDOW))


@TRANSITIONS.behaviour("B214", "DistinctTransitionsFreshOperationIDs")
async def distinct_transitions_fresh_operation_ids(t: Trial) -> None:
    """Create, Configure, Drain, Configure, Drain have five distinct ids; repeating the last Drain returns its id."""
    m = t.machine
    acks = [await m.to_idle()]
    for _ in range(2):
        acks.append(await m.to_configured())
        acks.append(await m.to_drained())
    ids = [ack.operation_id for ack in acks]
    t.require(len(set(ids)) == 5, f"operation ids repeat across transitions: {ids}")
    t.same_id(acks[-1], (await m.drain()).accepted("the machine was just drained"), "repeated Drain")


@TRANSITIONS.behaviour("B215", "UnknownGetAndDelete", slots=0, profiles=("core", "cloud"))
async def unknown_get_and_delete(t: Trial) -> None:
    """Get on an unknown id is NOT_FOUND; Delete is NOT_FOUND, or UNIMPLEMENTED where Delete does not exist."""
    ghost = t.ghost()
    (await t.get(ghost)).coded(Code.NOT_FOUND)
    reply = await t.delete(ghost)
    reply.coded(*((Code.NOT_FOUND,) if t.capabilities.delete else (Code.NOT_FOUND, Code.UNIMPLEMENTED)))


@TRANSITIONS.behaviour("B216", "ReconfigureToOtherClusterRefused", start=State.IDLE)
async def reconfigure_to_other_cluster_refused(t: Trial) -> None:
    """A bound machine belongs to one cluster: Configure naming another one is refused, not answered as a retry.

    An OK would let a shard believe the machine now serves the second cluster. The refusal is not FAILED_PRECONDITION,
    and binding and metadata stay as they were. Machines change cluster only through Idle.
    """
    m = t.machine
    await m.to_configured(metadata={"owner": "first"})
    reply = await m.configure(cluster=t.config.other_cluster, metadata={"owner": "second"})
    reply.rejected(f"the machine is bound to {t.cluster!r}")
    expect_bound(await m.stays(State.CONFIGURED, _WINDOW), t.cluster, {"owner": "first"})


@TRANSITIONS.behaviour("B217", "EmptyMachineIDDelete", slots=0)
async def empty_machine_id_delete(t: Trial) -> None:
    """Delete without a machine id answers INVALID_ARGUMENT, or UNIMPLEMENTED where Delete does not exist."""
    reply = await t.delete("")
    reply.coded(*((Code.INVALID_ARGUMENT,) if t.capabilities.delete else (Code.INVALID_ARGUMENT, Code.UNIMPLEMENTED)))


@TRANSITIONS.behaviour("B218", "BareMetalDeleteUnimplemented", start=State.IDLE, profiles=("bare-metal",))
async def bare_metal_delete_unimplemented(t: Trial) -> None:
    """A bare-metal provider answers every Delete with UNIMPLEMENTED and touches neither state nor fence.

    The check precedes the fence: after a refused Delete at (5,5) a Create at (1,1) by the same shard is first contact.
    """
    m, shard = t.machine, t.shard("metal")
    (await m.delete(shard.at(5, 5))).coded(Code.UNIMPLEMENTED)
    await m.stays(State.IDLE, _WINDOW)
    (await m.drain(shard.at(1, 1))).not_fenced().answered()


@TRANSITIONS.behaviour("B219", "CloudProfileImplementsDelete", start=State.IDLE, profiles=("cloud",))
async def cloud_profile_implements_delete(t: Trial) -> None:
    """The cloud profile promises Delete: on an Idle machine it is accepted and the slot returns to Speculative.

    A shard releases ON_DEMAND and SPOT machines by Delete and marks them Failed when it is refused.
    """
    reply = await t.machine.delete()
    if unimplemented(reply):
        raise reply.breach("Delete is UNIMPLEMENTED although the cloud profile was claimed")
    reply.accepted()
    await t.machine.settle(State.SPECULATIVE)
