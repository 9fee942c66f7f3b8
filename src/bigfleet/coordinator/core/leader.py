"""The leader's memory and judgement: what shards told it, what follows from that, and what each is told back.

Drives the state only by commands it hands out; whoever runs it commits them and comes back. Everything remembered here
may be lost at any moment: reports rebuild it, and what must not be lost is in the state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from bigfleet.coordinator.core import commands as do
from bigfleet.coordinator.core.bindings import bindings_for
from bigfleet.coordinator.core.instructions import ASSIGN, DRAIN, TRANSFER, WITHDRAW, Instruction, Instructions
from bigfleet.coordinator.core.looks import Looks
from bigfleet.coordinator.core.ownership import halted
from bigfleet.coordinator.core.planner import Drain, Plan, Planning, Rest
from bigfleet.coordinator.core.policy import Policy
from bigfleet.coordinator.core.records import Phase, Shape, Shard, Transfer
from bigfleet.coordinator.core.reports import TRANSFERS, Ack, Heard, Outcome, Report, Standing
from bigfleet.coordinator.core.slices import initial_slices
from bigfleet.coordinator.core.state import State
from bigfleet.coordinator.core.supply import key_of_shape

SETTLED_AT_ONCE = 50


class Leader:
    """One leadership over one state. Make a new one for every term."""

    def __init__(self, state: State, term: int, policy: Policy) -> None:
        self.state = state
        self.term = term
        self.policy = policy
        self.heard: dict[int, Heard] = {}
        self.instructions = Instructions(policy)
        self.looks = Looks(state.tables, self.heard, term)
        self._rests: dict[Rest, int] = {}
        self._proposals = 0

    def admit(self, report: Report, now: int) -> list[do.Command]:
        """What registers an unknown shard, or keeps up with one that moved."""
        known = self.state.tables.shards.get(report.shard)
        if known is None:
            return [do.AddShard(report.shard, report.address, now, report.tables)]
        if self._overtaken(known.generation, report):
            return []
        moved = bool(report.address) and report.address != known.address
        if moved or report.tables != known.tables:
            return [do.UpdateShard(report.shard, report.address, report.tables)]
        return []

    def hear(self, report: Report, now: int) -> tuple[bool, list[do.Command]]:
        """Take a registered shard's report: whether it counts, and what follows from it.

        A report of an earlier life of the shard, or one overtaken by a later, says nothing and gets no instructions.
        """
        shard = self.state.tables.shards[report.shard]
        last = self.heard.get(shard.generation)
        if self._overtaken(shard.generation, report):
            return False, []
        if last is None or last.report.epoch != report.epoch or report.cycle <= 1:
            self.instructions.restarted(shard.generation)
        self.heard[shard.generation] = Heard(report, now)
        commands = [command for ack in report.acks for command in self._answered(shard, ack, now)]
        commands += self._adopted(shard, report, now)
        commands += self._confirmed(shard)
        commands += self.looks.reported(shard, report)
        commands += bindings_for(self.state.tables, self.heard.keys(), shard, report, now)
        return True, commands

    def refused(self, command: do.Command, now: int) -> list[do.Command]:
        """What follows when the state refuses a command that a report led to.

        A donor that let go of machines it was not asked for, or that are not its own, gets them back.
        """
        transfer = self.state.tables.transfers.get(command.transfer) if isinstance(command, do.Release) else None
        if transfer is None or transfer.phase is not Phase.PROPOSED:
            return []
        self._rest(transfer.donor, transfer.recipient, transfer.shape, _tier(transfer), now)
        return [do.CallOff(transfer.id)]

    def waiting(self, shard: Shard, now: int) -> list[tuple[int, Instruction]]:
        """Instructions due for a shard, ascending."""
        return self.instructions.waiting(self.state.tables, shard, now)

    def housekeeping(self, now: int) -> list[do.Command]:
        """Proposals nobody answered in time are called off; what removed shards left is forgotten and swept."""
        tables = self.state.tables
        for generation in [each for each in self.heard if each not in tables.generations]:
            del self.heard[generation]
            self.instructions.forget(generation)
            self.looks.forget(generation)
        self.instructions.prune(tables)
        self._rests = {rest: until for rest, until in self._rests.items() if until > now}
        for drain in self.instructions.drains():
            if drain.recipient not in tables.generations or drain.donor not in tables.generations:
                self.instructions.done(drain.donor, drain.id)
        late: list[do.Command] = []
        for transfer in sorted(tables.transfers.values(), key=lambda each: each.id):
            if transfer.phase is Phase.PROPOSED and transfer.deadline <= now:
                self._rest(transfer.donor, transfer.recipient, transfer.shape, _tier(transfer), now)
                self.instructions.done(transfer.donor, TRANSFER + transfer.id)
                late.append(do.CallOff(transfer.id))
        return [*late, do.Sweep()] if tables.dead else late

    def planning(self, standings: Mapping[int, Standing], now: int) -> Planning:
        """A look for capacity to move, to be run in steps and then `concluded`."""
        fresh = {each: standings[each] for each in sorted(self._partners(now)) if each in standings}
        draining = {(drain.recipient, key_of_shape(drain.shape)) for drain in self.instructions.drains()}
        tables = self.state.tables
        return Planning(tables, fresh, self.policy, now, resting=frozenset(self._rests), draining=draining)

    def concluded(self, plan: Plan, now: int) -> list[do.Command]:
        """Transfers become proposals, drains instructions."""
        for drain in plan.drains:
            self.instructions.drain(drain)
        return [do.Propose(self._named(transfer, now, self.policy.release_within)) for transfer in plan.transfers]

    def slices(self, standings: Mapping[int, Standing], now: int) -> list[do.Command]:
        """What shards that own nothing get to begin with; once everybody registered was heard."""
        tables = self.state.tables
        heard = {each for each, told in self.heard.items() if told.at >= now - self.policy.fresh}
        if not self.policy.initial_slices or not tables.generations.keys() <= heard:
            return []
        return initial_slices(tables, {each: standings[each] for each in tables.generations if each in standings})

    def resting(self, now: int) -> int:
        return sum(1 for until in self._rests.values() if until > now)

    def _overtaken(self, generation: int, report: Report) -> bool:
        """Whether a later report was heard. The first cycle of an equal epoch is a restart that kept no epoch."""
        last = self.heard.get(generation)
        if last is None or (report.cycle <= 1 and report.epoch == last.report.epoch):
            return False
        return (report.epoch, report.cycle) < (last.report.epoch, last.report.cycle)

    def _partners(self, now: int) -> Iterator[int]:
        """Shards that take part: heard lately, able to transfer, and not held by a switch."""
        for generation, heard in self.heard.items():
            shard = self.state.tables.generations.get(generation)
            if shard is None or heard.at < now - self.policy.fresh or TRANSFERS not in heard.report.capabilities:
                continue
            if shard.tables and not halted(self.state.tables, shard):
                yield generation

    def _answered(self, shard: Shard, ack: Ack, now: int) -> list[do.Command]:
        if ack.instruction.startswith(TRANSFER):
            return self._transfer_answered(shard, ack, now)
        if ack.instruction.startswith(DRAIN):
            return self._drain_answered(shard, ack, now)
        if ack.instruction.startswith((ASSIGN, WITHDRAW)):
            return self._assignment_answered(shard, ack, now)
        return []

    def _transfer_answered(self, shard: Shard, ack: Ack, now: int) -> list[do.Command]:
        transfer = self.state.tables.transfers.get(ack.instruction.removeprefix(TRANSFER))
        if transfer is None or transfer.phase is not Phase.PROPOSED or transfer.donor != shard.generation:
            return []
        if ack.outcome is Outcome.ACCEPTED:
            self.instructions.done(shard.generation, ack.instruction)
            if not ack.machines:
                self._rest(transfer.donor, transfer.recipient, transfer.shape, _tier(transfer), now)
            return [do.Release(transfer.id, ack.machines, ack.provider)]
        if ack.outcome is Outcome.REJECTED_STALE:
            return []
        # A drain takes as long as its pods do: the deadline bounds it, not the number of attempts.
        drained = transfer.drained
        again = self.instructions.failed(shard.generation, ack.instruction, now, soon=drained) or drained
        if ack.outcome is Outcome.FAILED and again:
            return []
        self.instructions.done(shard.generation, ack.instruction)
        self._rest(transfer.donor, transfer.recipient, transfer.shape, _tier(transfer), now)
        return [do.CallOff(transfer.id)]

    def _drain_answered(self, shard: Shard, ack: Ack, now: int) -> list[do.Command]:
        drain = self.instructions.drain_asked(shard.generation, ack.instruction)
        changing = shard.generation in self.state.tables.waiting
        if drain is None or changing or ack.outcome is Outcome.REJECTED_STALE:
            # Asked again later: a shard whose domains change hands gives nothing until that is settled.
            return []
        if ack.outcome is Outcome.FAILED and self.instructions.failed(shard.generation, ack.instruction, now):
            return []
        self.instructions.done(shard.generation, ack.instruction)
        if (
            ack.outcome is not Outcome.ACCEPTED
            or not ack.machines
            or drain.recipient not in self.state.tables.generations
        ):
            self._rest(drain.donor, drain.recipient, drain.shape, 3, now)
            return []
        return [do.Propose(self._named(_after(drain, ack), now, self.policy.drain_within))]

    def _assignment_answered(self, shard: Shard, ack: Ack, now: int) -> list[do.Command]:
        tables = self.state.tables
        subjects = {each.id: each.subject for _, each in self.waiting(shard, now)}
        subject = subjects.get(ack.instruction)
        if subject is None or ack.outcome is Outcome.REJECTED_STALE:
            return []
        if ack.outcome is Outcome.FAILED:
            self.instructions.failed(shard.generation, ack.instruction, now)
            return []
        self.instructions.done(shard.generation, ack.instruction)
        if ack.instruction.startswith(ASSIGN):
            self.instructions.told(shard.generation, tables.domains[subject.topology_key, subject.value])  # type: ignore[union-attr]
            return []
        row = tables.withdrawn[shard.generation, subject.topology_key, subject.value]  # type: ignore[union-attr]
        given_up = do.ForgetWithdrawn(shard.id, row.topology_key, row.value, row.revision)
        domain = tables.domains.get((row.topology_key, row.value))
        if domain is None or set(tables.awaited(domain)) - {shard.generation}:
            return [given_up]
        return [given_up, do.SettleDomains(((domain.topology_key, domain.value, domain.revision),))]

    def _adopted(self, shard: Shard, report: Report, now: int) -> list[do.Command]:
        transfers = self.state.tables.transfers
        mine = (transfers[name] for name in sorted(self.state.tables.open.get(shard.generation, ())))
        return [
            do.Adopt(each.id, now)
            for each in mine
            if each.phase is Phase.RELEASED and each.recipient == shard.generation and report.version >= each.revision
        ]

    def _confirmed(self, shard: Shard) -> list[do.Command]:
        """Domains whose last awaited shard this was."""
        tables = self.state.tables
        over = []
        for place in sorted(tables.waiting.get(shard.generation, ())):
            domain = tables.domains[place]
            if all(self._has_confirmed(each, place, domain.revision) for each in tables.awaited(domain)):
                over.append((*place, domain.revision))
        pages = range(0, len(over), SETTLED_AT_ONCE)
        return [do.SettleDomains(tuple(over[begin : begin + SETTLED_AT_ONCE])) for begin in pages]

    def _has_confirmed(self, generation: int, place: tuple[str, str], revision: int) -> bool:
        if not self.state.tables.generations[generation].tables:
            return (generation, *place) not in self.state.tables.withdrawn
        heard = self.heard.get(generation)
        return heard is not None and heard.report.version >= revision and not self._may_let_go(generation)

    def _may_let_go(self, generation: int) -> bool:
        """Whether it was asked for machines and has not answered: it may have let some go, of whatever domain."""
        tables = self.state.tables
        asked = (tables.transfers[name] for name in tables.open.get(generation, ()))
        return any(each.phase is Phase.PROPOSED and each.donor == generation for each in asked)

    def _rest(self, donor: int, recipient: int, shape: Shape, tier: int, now: int) -> None:
        self._rests[Rest(donor, recipient, key_of_shape(shape), tier)] = now + self.policy.rest

    def _named(self, transfer: Transfer, now: int, within: int) -> Transfer:
        self._proposals += 1
        return replace(transfer, id=f"{self.term}.{self._proposals}", proposed_at=now, deadline=now + within)


def _tier(transfer: Transfer) -> int:
    return 2 if transfer.speculative else 1


def _after(drain: Drain, ack: Ack) -> Transfer:
    return Transfer(
        id="",
        phase=Phase.PROPOSED,
        donor=drain.donor,
        recipient=drain.recipient,
        provider=drain.provider or ack.provider,
        selector=replace(drain.selector, count=0),
        machines=tuple(sorted(ack.machines)),
        shape=drain.shape,
        priority=drain.priority,
        # Demand without units is one claim.
        units=drain.units or 1,
        drained=True,
    )
