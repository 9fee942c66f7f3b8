"""The coordinator's core over several sites: reports and answers through the real codecs, on the virtual clock.

The counterpart of the coordinator's process and of the shards' links to it. What is committed is committed at once;
what is left of the real thing is the order: a report is heard, what follows is applied, then the answer is rendered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bigfleet.coordinator.core import commands as do
from bigfleet.coordinator.core.commands import Refused
from bigfleet.coordinator.core.leader import Leader
from bigfleet.coordinator.core.policy import Policy
from bigfleet.coordinator.core.state import State
from bigfleet.coordinator.server.answers import Answers
from bigfleet.coordinator.server.codec import report_of, standing_of
from bigfleet.model.names import ZONE_LABEL
from bigfleet.shard.coordinator_link.codec import answer_of
from bigfleet.shard.coordinator_link.link import report_message
from bigfleet.shard.coordinator_link.report import standing_of as shard_standing
from bigfleet.sim.scenario.scenario import CoordinatorSpec
from bigfleet.sim.world.host import EPOCH
from bigfleet.sim.world.site import Site
from bigfleet.virtual.kernel import Kernel
from bigfleet.wire import coordinator_pb2


@dataclass(frozen=True, slots=True)
class Moved:
    """One machine changed shards."""

    at: int
    machine: str
    donor: str
    recipient: str


class Coordinating:
    """One coordinator that never fails; `moved` is everything it brought about."""

    def __init__(self, kernel: Kernel, sites: Sequence[Site], wanted: CoordinatorSpec, zones: Sequence[str]) -> None:
        self._kernel = kernel
        self._sites = sites
        policy = Policy(
            after=wanted.after, preempt_after=wanted.preempt_after, cooldown=wanted.cooldown, margin=wanted.margin
        )
        self.leader = Leader(State(), 1, policy)
        self.moved: list[Moved] = []
        self._answers = Answers(self.leader)
        self._raw: dict[int, bytes] = {}
        self._reports = 0
        for site in sites:
            self._apply([do.AddShard(site.name, "", EPOCH, True)])
        for number, zone in enumerate(zones):
            self._apply([do.AssignDomain(ZONE_LABEL, zone, sites[number % len(sites)].name)])
        kernel.every(wanted.report_every, self._hear_all)
        kernel.every(wanted.plan_every, self._plan)

    def _hear_all(self) -> None:
        for site in self._sites:
            if self._hear(site):
                # As the link does: whoever was asked, or got a new table, tells at once what came of it.
                self._hear(site)
        self._apply(self.leader.housekeeping(self._now))

    def _hear(self, site: Site) -> bool:
        """A report and its answer; whether there is something to tell at once."""
        core = site.host.core
        if core is None:
            return False
        self._reports += 1
        standing = shard_standing(core, self._now)
        message = report_message(
            standing, shard_id=site.name, cycle=self._reports, epoch=site.host.epoch, advertise="", now=self._now
        )
        report = report_of(message)
        counts, commands = self.leader.hear(report, self._now)
        if counts:
            self._raw[self.leader.state.tables.shards[site.name].generation] = message.SerializeToString()
        self._apply(commands)
        body, _ = self._answers.answer(report, counts, self._now)
        told = [ack.instruction for ack in standing.acks]
        site.host.post(answer_of(coordinator_pb2.ReportAck.FromString(body), told))
        return bool(core.read.acks()) or core.published.ownership_version != standing.ownership_version

    def _plan(self) -> None:
        read = coordinator_pb2.ShardReport.FromString
        planning = self.leader.planning({each: standing_of(read(raw)) for each, raw in self._raw.items()}, self._now)
        for _ in planning.steps():
            pass
        self._apply(self.leader.concluded(planning.plan, self._now))

    def _apply(self, commands: Iterable[do.Command]) -> None:
        for command in commands:
            try:
                self.leader.state.apply(command)
            except Refused:
                self._apply(self.leader.refused(command, self._now))
                continue
            if isinstance(command, do.Release) and command.machines:
                self._note(command)

    def _note(self, released: do.Release) -> None:
        tables = self.leader.state.tables
        transfer = tables.transfers[released.transfer]
        donor, recipient = (tables.generations[each].id for each in (transfer.donor, transfer.recipient))
        self.moved += [Moved(self._kernel.now, machine, donor, recipient) for machine in transfer.machines]

    @property
    def _now(self) -> int:
        return EPOCH + self._kernel.now
