"""One leased machine and the walks a behaviour takes with it.

Waits poll quickly at first and slow down towards the limit, so a memory backend costs milliseconds and a real host
that takes minutes is not hammered.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from bigfleet.provider.conformance.reply import ZERO, Code, Reply, Token
from bigfleet.provider.conformance.states import TRANSITIONAL, State, state_name
from bigfleet.provider.conformance.verdicts import Breach
from bigfleet.wire import provider_pb2 as pb

if TYPE_CHECKING:
    from bigfleet.provider.conformance.trial import Trial

_FASTEST = 0.001


class Subject:
    """A machine id bound to the trial that may use it."""

    __slots__ = ("id", "trial")

    def __init__(self, trial: Trial, machine_id: str) -> None:
        self.trial = trial
        self.id = machine_id

    # --- single calls ------------------------------------------------------------------------------------------
    # The trial's calls with this machine's id; their arguments stand again because they are checked by name and type.

    async def create(self, token: Token = ZERO, connection: int = 0) -> Reply:
        return await self.trial.create(self.id, token, connection)

    async def configure(
        self,
        token: Token = ZERO,
        *,
        cluster: str | None = None,
        metadata: dict[str, str] | None = None,
        blob: bytes | None = None,
        connection: int = 0,
    ) -> Reply:
        return await self.trial.configure(
            self.id, token, cluster=cluster, metadata=metadata, blob=blob, connection=connection
        )

    async def drain(self, token: Token = ZERO, *, grace: int = 5, connection: int = 0) -> Reply:
        return await self.trial.drain(self.id, token, grace=grace, connection=connection)

    async def delete(self, token: Token = ZERO, connection: int = 0) -> Reply:
        return await self.trial.delete(self.id, token, connection)

    async def get(self) -> pb.Machine:
        """The machine's record; a machine that was listed can always be read."""
        reply = await self.trial.get(self.id)
        reply.accepted("the machine was listed, so Get must find it")
        answer = reply.exchange.answer
        assert isinstance(answer, pb.Machine)
        if answer.id != self.id:
            raise reply.breach(f"Get({self.id!r}) returned the record of {answer.id!r}", "A machine id never changes.")
        if not State.UNSPECIFIED < answer.state <= State.FAILED:
            raise reply.breach(f"{self.id} is in the unknown state {answer.state}", "The contract knows eight states.")
        return answer

    async def listed(self, *states: State) -> pb.Machine:
        """The machine's record as a List shows it."""
        found = [m for m in (await self.trial.listing(states)).machines if m.id == self.id]
        if not found:
            wanted = "+".join(s.name for s in states) or "every state"
            raise Breach(
                f"List({wanted}) does not contain {self.id}",
                contract="List returns every machine whose state the filter names; Get and List agree.",
            )
        return found[0]

    # --- walks -------------------------------------------------------------------------------------------------

    async def to_idle(self, token: Token = ZERO) -> Reply:
        """Create from Speculative and wait for Idle."""
        reply = (await self.create(token)).accepted("Create is legal on a Speculative machine")
        await self.settle(State.IDLE, self.trial.limits.create)
        return reply

    async def to_configured(
        self,
        token: Token = ZERO,
        *,
        cluster: str | None = None,
        metadata: dict[str, str] | None = None,
        blob: bytes | None = None,
    ) -> Reply:
        """Configure from Idle and wait for Configured."""
        reply = await self.configure(token, cluster=cluster, metadata=metadata, blob=blob)
        reply.accepted("Configure is legal on an Idle machine")
        await self.settle(State.CONFIGURED)
        return reply

    async def to_drained(self, token: Token = ZERO, *, grace: int = 5) -> Reply:
        """Drain from Configured and wait for Idle."""
        reply = (await self.drain(token, grace=grace)).accepted("Drain is legal on a Configured machine")
        await self.settle(State.IDLE, self.trial.limits.drain)
        return reply

    async def to_deleted(self, token: Token = ZERO) -> Reply:
        """Delete from Idle and wait for Speculative."""
        reply = (await self.delete(token)).accepted("Delete is legal on an Idle machine")
        await self.settle(State.SPECULATIVE)
        return reply

    # --- waiting -----------------------------------------------------------------------------------------------

    async def settle(self, state: State, limit: float | None = None) -> pb.Machine:
        """Wait until the machine rests in `state`; FAILED on the way ends the wait."""
        limit = self.trial.limits.to_reach(state) if limit is None else limit
        machine = await self.until({state, State.FAILED}, limit)
        if machine.state == state:
            return machine
        why = f"FAILED: {machine.last_error}" if machine.state == State.FAILED else state_name(machine.state)
        raise Breach(
            f"{self.id} did not reach {state.name} within {limit:g} s; it is {why}",
            contract="An accepted transition settles in its stable target; progress is visible through Get and List.",
        )

    async def until(self, states: set[State], limit: float) -> pb.Machine:
        """Poll until one of the states or the limit; returns the last record either way."""
        deadline = time.monotonic() + limit
        slowest = max(self.trial.limits.poll, limit / 600)
        pause = min(0.002, slowest)
        while True:
            machine = await self.get()
            if machine.state in states or time.monotonic() >= deadline:
                return machine
            await asyncio.sleep(pause)
            pause = min(pause * 1.6, slowest)

    async def trace(self, until: State, limit: float | None = None) -> list[pb.Machine]:
        """Every record seen while fast-polling to `until`, ending with the settled one."""
        limit = self.trial.limits.to_reach(until) if limit is None else limit
        begun, seen = time.monotonic(), list[pb.Machine]()
        while True:
            machine = await self.get()
            seen.append(machine)
            if machine.state == until:
                return seen
            elapsed = time.monotonic() - begun
            if machine.state == State.FAILED or elapsed >= limit:
                raise Breach(
                    f"{self.id} did not reach {until.name} within {limit:g} s; it is {state_name(machine.state)}"
                    + (f": {machine.last_error}" if machine.last_error else ""),
                    contract="An accepted transition settles in its stable target.",
                )
            # Windows are caught early or not at all: real hosts that dwell for minutes need no millisecond polling.
            await asyncio.sleep(_FASTEST if elapsed < 0.5 else max(self.trial.limits.poll, limit / 600))

    async def stays(self, state: State, window: float | None = None) -> pb.Machine:
        """The machine must not leave `state` during the stability window."""
        deadline = time.monotonic() + (self.trial.limits.window if window is None else window)
        while True:
            machine = await self.get()
            if machine.state != state:
                raise Breach(
                    f"{self.id} moved from {state.name} to {state_name(machine.state)} although nothing asked it to",
                    contract="A machine at rest stays put: only an accepted call starts a transition.",
                )
            if time.monotonic() >= deadline:
                return machine
            await asyncio.sleep(self.trial.limits.poll)

    # --- what a record must look like --------------------------------------------------------------------------

    async def clean_at(self, state: State) -> pb.Machine:
        """Settled in `state` without any trace of a binding or an error."""
        machine = await self.get()
        self.expect_state(machine, state)
        expect_unbound(machine)
        if machine.last_error:
            raise Breach(f"{self.id} is {state.name} with last_error {machine.last_error!r}")
        return machine

    def expect_state(self, machine: pb.Machine, state: State) -> None:
        if machine.state != state:
            raise Breach(f"{self.id} is {state_name(machine.state)}; {state.name} was due")

    def expect_only(self, seen: list[pb.Machine], transitional: State) -> None:
        """Any transitional state in a trace must be the one of this edge."""
        for machine in seen:
            if machine.state in TRANSITIONAL and machine.state != transitional:
                raise Breach(
                    f"{self.id} showed {state_name(machine.state)} on an edge whose transitional state is "
                    f"{transitional.name}",
                    contract="A backend may skip the transitional state but never show another edge's.",
                )


def has_host(machine: pb.Machine) -> bool:
    """The suite's rule: a host is set if either of its fields is."""
    return bool(machine.host.provider or machine.host.ref)


def expect_unbound(machine: pb.Machine) -> None:
    """Neither cluster nor metadata may outlive a binding."""
    if machine.cluster or machine.shard_metadata:
        left = f"cluster {machine.cluster!r}" if machine.cluster else f"{len(machine.shard_metadata)} metadata keys"
        raise Breach(
            f"{machine.id} is {state_name(machine.state)} and still carries {left}",
            contract="cluster and shard_metadata are cleared together when a Drain reaches IDLE and are empty in "
            "SPECULATIVE, CREATING, IDLE and DELETING.",
        )


def expect_bound(machine: pb.Machine, cluster: str, metadata: dict[str, str] | None = None) -> None:
    """Cluster and, if given, the metadata map exactly as asked."""
    if machine.cluster != cluster:
        raise Breach(
            f"{machine.id} is {state_name(machine.state)} with cluster {machine.cluster!r}; {cluster!r} was due",
            contract="cluster is recorded when Configure is accepted and shown in CONFIGURING, CONFIGURED, DRAINING.",
        )
    if metadata is None or dict(machine.shard_metadata) == metadata:
        return
    have = dict(machine.shard_metadata)
    missing = [k for k in metadata if k not in have]
    extra = [k for k in have if k not in metadata]
    changed = [k for k in metadata if k in have and have[k] != metadata[k]]
    raise Breach(
        f"{machine.id}: shard_metadata differs: {len(missing)} keys missing {missing[:3]!r}, {len(extra)} added "
        f"{extra[:3]!r}, {len(changed)} changed {changed[:3]!r}",
        contract="shard_metadata is stored and echoed byte for byte on every Get, List and ack, never interpreted, "
        "truncated or merged.",
    )


def unimplemented(reply: Reply) -> bool:
    return reply.code is Code.UNIMPLEMENTED
