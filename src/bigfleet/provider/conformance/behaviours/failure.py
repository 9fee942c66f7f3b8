"""Timeouts and failure: a transition that cannot succeed ends in FAILED with a diagnosis, and stays there.

Runs against the author's own provider: the `faults:` map of the config says which cluster id, label or command provokes
what. `faults: reference` names the selectors of the reference fault provider.
"""

from __future__ import annotations

import asyncio
import time

from bigfleet.provider.conformance.config import Fault, seconds
from bigfleet.provider.conformance.registry import Family, Lane
from bigfleet.provider.conformance.states import State, state_name
from bigfleet.provider.conformance.subject import Subject
from bigfleet.provider.conformance.trial import Trial
from bigfleet.provider.conformance.verdicts import Breach, Skip, SkipKind
from bigfleet.wire import provider_pb2 as pb

FAILURE = Family("Timeouts & Failure", Lane.FAULT, ("fault",))

_SLACK = 3.0
_PROMPT = 1.0
_DIAGNOSIS = "On timeout or backend error the state is FAILED and last_error says why; never a silent revert."


@FAILURE.behaviour("B701", "ConfigureActuatorError", slots=0)
async def configure_actuator_error(t: Trial) -> None:
    """A Configure whose backend call fails is accepted, ends in FAILED with last_error, and never tries again."""
    m, _ = await _failed_machine(t)
    await m.stays(State.FAILED)


@FAILURE.behaviour("B702", "CreateActuatorError", slots=0)
async def create_actuator_error(t: Trial) -> None:
    """A Create whose backend call fails ends in FAILED with last_error and never shows CREATING again."""
    m, _ = await _victim(t, t.faults.create_error, "create_error", State.SPECULATIVE)
    (await m.create()).accepted("a backend failure shows in the machine's state, not in the ack")
    await _fails(t, m, t.limits.create)
    await m.stays(State.FAILED)


@FAILURE.behaviour("B703", "TransitionTimeout", slots=0)
async def transition_timeout(t: Trial) -> None:
    """A Configure that never returns is given up: FAILED with last_error soon after the provider's own timeout."""
    m, cluster = await _victim(t, t.faults.configure_timeout, "configure_timeout")
    (await m.configure(cluster=cluster)).accepted()
    await _fails(t, m, seconds(t.faults.timeout) + _SLACK * t.config.timing.multiplier)


@FAILURE.behaviour("B704", "LateSuccessDiscarded", slots=0)
async def late_success_discarded(t: Trial) -> None:
    """A backend call that succeeds after its timeout changes nothing: the machine is FAILED and stays FAILED."""
    m, cluster = await _victim(t, t.faults.configure_slow_ok, "configure_slow_ok")
    timeout = seconds(t.faults.timeout)
    (await m.configure(cluster=cluster)).accepted()
    failed = await _fails(t, m, timeout + _SLACK * t.config.timing.multiplier)
    after = await m.stays(State.FAILED, timeout + 2.0)
    t.require(after.last_error == failed.last_error, "last_error changed when the late success arrived")


@FAILURE.behaviour("B705", "FailedIsTerminal", slots=0)
async def failed_is_terminal(t: Trial) -> None:
    """FAILED has no exit by RPC: every mutation is refused, not with FAILED_PRECONDITION, and the diagnosis is kept."""
    m, error = await _failed_machine(t)
    (await m.configure()).rejected("the machine is FAILED")
    (await m.create()).rejected("the machine is FAILED")
    (await m.drain()).rejected("the machine is FAILED")
    after = await m.stays(State.FAILED)
    t.require(after.last_error == error, f"last_error changed from {error!r} to {after.last_error!r}")


@FAILURE.behaviour("B706", "DrainAgainstFailingActuator", slots=0)
async def drain_against_failing_actuator(t: Trial) -> None:
    """A Drain whose backend call fails ends in FAILED with last_error or, forced, in Idle; never stuck in DRAINING."""
    m, cluster = await _victim(t, t.faults.drain_error, "drain_error")
    await m.to_configured(cluster=cluster)
    (await m.drain(grace=0)).accepted()
    limit = max(t.limits.drain, seconds(t.faults.timeout) + _SLACK)
    machine = await m.until({State.IDLE, State.FAILED}, limit)
    t.require(
        machine.state in (State.IDLE, State.FAILED), f"{m.id} is {state_name(machine.state)} {limit:g} s after Drain"
    )
    t.require(machine.state != State.FAILED or bool(machine.last_error), f"{m.id} is FAILED without last_error")


@FAILURE.behaviour("B707", "FailedStillReadable", slots=0)
async def failed_still_readable(t: Trial) -> None:
    """A FAILED machine stays readable by Get and List with its last_error word for word."""
    m, error = await _failed_machine(t)
    for machine in [*[await m.get() for _ in range(3)], await m.listed(State.FAILED)]:
        m.expect_state(machine, State.FAILED)
        t.require(machine.last_error == error, f"last_error reads {machine.last_error!r}, before it was {error!r}")


@FAILURE.behaviour("B708", "NodeReadinessGate", slots=0)
async def node_readiness_gate(t: Trial) -> None:
    """CONFIGURED means the node is Ready in its cluster: while readiness does not come, the machine stays CONFIGURING.

    After the Configure timeout it is FAILED with last_error. A machine reported Configured at boot is capacity that
    cannot be scheduled on, and nobody notices.
    """
    m, cluster = await _victim(t, t.faults.readiness_block, "readiness_block")
    timeout = seconds(t.faults.timeout)
    (await m.configure(cluster=cluster)).accepted()
    machine = await m.until({State.CONFIGURED}, max(0.1, timeout - 0.5))
    t.require(
        machine.state != State.CONFIGURED,
        f"{m.id} is CONFIGURED although its node never became Ready",
        "A provider must not report CONFIGURED until it has observed the node Ready on the target cluster.",
    )
    await _fails(t, m, timeout + _SLACK * t.config.timing.multiplier)


@FAILURE.behaviour("B709", "AcksPromptWhileBackendBlocks", slots=(1, 2), start=State.IDLE, exclusive=True)
async def acks_prompt_while_backend_blocks(t: Trial) -> None:
    """Lifecycle calls accept and return: neither the call whose backend blocks nor anyone else waits for the backend.

    While a Configure hangs in the backend its own ack, reads, and calls on other machines are each answered within one
    second (stretched by the time multiplier).
    """
    m, cluster = await _victim(t, t.faults.configure_timeout, "configure_timeout", borrowed=t.machines[0])
    limit = _PROMPT * t.config.timing.multiplier
    replies = [(await m.configure(cluster=cluster)).accepted()]
    for _ in range(10):
        replies += [await t.get(m.id), await t.list_reply(max_results=1)]
        for other in t.machines[1:]:
            replies.append(await other.create())
    for reply in replies:
        if reply.answered().seconds > limit:
            raise reply.breach(f"answered after {reply.seconds:.2f} s while a backend call was blocking")
    await _fails(t, m, seconds(t.faults.timeout) + _SLACK * t.config.timing.multiplier)


async def failing_configure(t: Trial, blob: bytes) -> Subject:
    """A machine FAILED by a Configure that carried this blob."""
    m, cluster = await _victim(t, t.faults.configure_error, "configure_error")
    (await m.configure(cluster=cluster, blob=blob)).accepted()
    await _fails(t, m, t.limits.configure)
    return m


async def _failed_machine(t: Trial) -> tuple[Subject, str]:
    """A machine FAILED by a Configure error, shared by the behaviours that only look at one: pools may be small."""
    cache = t.shared.setdefault("failed-machine", asyncio.get_running_loop().create_future())
    if t.shared.setdefault("failed-machine-owner", t) is t:
        try:
            m, cluster = await _victim(t, t.faults.configure_error, "configure_error")
            (await m.configure(cluster=cluster)).accepted("a backend failure shows in the state, not in the ack")
            cache.set_result((m.id, (await _fails(t, m, t.limits.configure)).last_error))
        except BaseException as error:
            cache.set_exception(error)
    machine_id, diagnosis = await asyncio.shield(cache)
    return Subject(t, machine_id), diagnosis


async def _fails(t: Trial, m: Subject, limit: float) -> pb.Machine:
    begun = time.monotonic()
    machine = await m.until({State.FAILED, State.CONFIGURED}, limit)
    if machine.state != State.FAILED:
        waited = time.monotonic() - begun
        raise Breach(f"{m.id} is {state_name(machine.state)} after {waited:.1f} s; FAILED was due", contract=_DIAGNOSIS)
    t.require(bool(machine.last_error), f"{m.id} is FAILED without last_error", _DIAGNOSIS)
    return machine


async def _victim(
    t: Trial, fault: Fault | None, name: str, start: State = State.IDLE, borrowed: Subject | None = None
) -> tuple[Subject, str | None]:
    """The machine on which this fault will strike and the cluster id that triggers it."""
    if fault is None:
        raise Skip(f"faults.{name} is not configured", SkipKind.NOT_CONFIGURED)
    if fault.label or fault.machine:
        m = Subject(t, await _selected(t, fault, name))
        if start is State.IDLE and (await m.get()).state == State.SPECULATIVE:
            await m.to_idle()
    else:
        m = borrowed or await t.borrow(start)
    if fault.command:
        await t.hook(fault.command, m.id)
    return m, fault.cluster or None


async def _selected(t: Trial, fault: Fault, name: str) -> str:
    taken: set[str] = t.shared.setdefault("selected", set())
    key, _, value = fault.label.partition("=")
    for machine in (await t.listing((State.SPECULATIVE, State.IDLE))).machines:
        wanted = machine.id == fault.machine if fault.machine else machine.labels.get(key) == value
        if wanted and machine.id not in taken:
            taken.add(machine.id)
            return machine.id
    raise Skip(f"faults.{name}: no free machine matches {fault.label or fault.machine!r}", SkipKind.INVENTORY)
