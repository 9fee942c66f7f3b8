"""One shard with its providers and its clusters: the closed loop.

Wires production parts together and nothing else: the shard core in its host, the kit's lifecycle in the virtual fake
behind a port, one operator agent per cluster on a session link, and the cluster whose nodes are the provider's hosts.
Hosts join and leave clusters by what the provider does, never by what the shard believes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bigfleet.model.machine import MachineState
from bigfleet.operator.core import events as op
from bigfleet.provider.fake.catalogue import Catalogue
from bigfleet.provider.fake.virtual import VirtualProvider
from bigfleet.provider.kit.core.events import Row, SaveMachine, SaveRemoval
from bigfleet.provider.kit.core.records import MachineRecord
from bigfleet.shard.contract import events as ev
from bigfleet.shard.contract.config import ShardConfig
from bigfleet.sim.scenario.scenario import ClusterSpec, Mode, OperatorKind
from bigfleet.sim.scenario.steps import Amid, Untruth
from bigfleet.sim.scenario.supply import Binding
from bigfleet.sim.world.cluster import Cluster
from bigfleet.sim.world.host import EPOCH, Listener, ShardHost
from bigfleet.sim.world.meter import Meter
from bigfleet.sim.world.operators.agent import Agent, Output, Say, heard
from bigfleet.sim.world.operators.placing import PlacementReports
from bigfleet.sim.world.operators.summing import SumReports
from bigfleet.sim.world.pods import Kinds
from bigfleet.sim.world.port import ProviderPort, Translator
from bigfleet.virtual.kernel import Duration, Kernel, Link, Timer, Weather

_NODE_STATES = (MachineState.CONFIGURED, MachineState.DRAINING)


@dataclass(slots=True)
class Member:
    """One cluster, its operator and the stream between operator and shard."""

    spec: ClusterSpec
    cluster: Cluster
    agent: Agent
    says: SumReports | PlacementReports
    cut: bool = False
    session: int | None = None
    timer: Timer | None = None
    look: Timer | None = None
    to_shard: Link[tuple[int, ev.Event]] | None = None
    to_operator: Link[tuple[int, ev.Frame]] | None = None


class Site:
    """A shard and everything it looks after."""

    def __init__(
        self,
        kernel: Kernel,
        config: ShardConfig,
        meter: Meter,
        listener: Listener,
        engine: Callable[[], Any],
        *,
        mode: Mode,
        rpc: Duration,
        session: Duration,
        check: bool,
        shuffle: random.Random | None,
    ) -> None:
        self.name = config.id
        self.members: dict[str, Member] = {}
        # Its own providers; those and its neighbours', as its shard dials them.
        self.ports: dict[str, ProviderPort] = {}
        self.dialled: dict[str, ProviderPort] = {}
        # Whose providers have the machines of this site's clusters, and where clusters are: all here, unless a
        # coordinator makes several sites one fleet.
        self.host_site = self
        self.sites_of: dict[str, Site] = {}
        self.machines: dict[str, MachineRecord] = {}
        self._kernel = kernel
        self._meter = meter
        self._inline = mode is Mode.INLINE
        self._rpc = None if self._inline else rpc
        self._delay = session
        self._dice = kernel.random_stream(f"session/{config.id}")
        self._check = check
        self._shuffle = shuffle
        self._sessions: dict[int, Member] = {}
        self._opened = 0
        self._evictions: dict[str, Timer] = {}
        self._turn: dict[str, Timer] = {}
        self._translators: dict[str, Translator] = {}
        self._since: dict[str, int] = {}
        self.host = ShardHost(kernel, config, self.dialled, self, listener, engine, check=check)
        self.on_change: Callable[[str], None] = lambda cluster: None

    # --------------------------------------------------------------------------------------------------------- building

    def add_provider(self, catalogue: Catalogue) -> None:
        name = catalogue.provider
        translator = self._translators[name] = Translator(name, EPOCH)
        provider = VirtualProvider(self._kernel, catalogue, lambda row: self._row(translator, row))
        for record in provider.core.machines.values():
            self._changed(translator, record.id, record)
        port = ProviderPort(name, self._kernel, provider, translator, self._rpc, EPOCH, self._shuffle)
        self.ports[name] = self.dialled[name] = port

    def dial(self, name: str, other: Site) -> None:
        """Use a provider of another site."""
        provider, translator = other.ports[name].provider, other._translators[name]
        called = f"{self.name}/{name}"
        self.dialled[name] = ProviderPort(called, self._kernel, provider, translator, self._rpc, EPOCH, self._shuffle)
        self.host_site = other

    def add_cluster(self, spec: ClusterSpec, cluster: Cluster, kinds: Kinds, operator: OperatorKind) -> None:
        says: SumReports | PlacementReports = SumReports(cluster, self._shuffle)
        if operator is OperatorKind.PLACEMENT:
            says = PlacementReports(cluster, kinds.resources, kinds.risks, levels=spec.levels)
            says.on_open = lambda: self.demand_changed(cluster.name)
        agent = Agent(
            cluster.name,
            rollup_interval=spec.rollup_interval,
            pause=lambda: spec.reconnect.sample(self._dice),
            drain_reports=spec.drain_reports,
            placement=says if isinstance(says, PlacementReports) else None,
        )
        member = self.members[cluster.name] = Member(spec, cluster, agent, says)
        weather = Weather(delay=self._delay)
        member.to_shard = Link(
            self._kernel, f"{self.name}/{cluster.name}/up", lambda sent: self._arrive(member, *sent), weather
        )
        member.to_operator = Link(
            self._kernel, f"{self.name}/{cluster.name}/down", lambda sent: self._hear(member, *sent), weather
        )

    def bind(self, provider: str, binding: Binding) -> None:
        self.ports[provider].provider.bind(binding.machine, binding.cluster, binding.metadata)

    def start(self) -> None:
        for member in self.members.values():
            member.cluster.bind(self._kernel.now)
        self.host.start()
        for name, member in self.members.items():
            self._operate(member, op.Started())
            self._account(name)

    # ---------------------------------------------------------------------------------------------------------- demand

    def demand_changed(self, name: str) -> None:
        """Pods came, went or were thrown out: the scheduler gets its turn, the operator notices."""
        if name not in self._turn:
            self._turn[name] = self._kernel.at(self._kernel.now, lambda: self._schedule(name))

    def _schedule(self, name: str) -> None:
        del self._turn[name]
        member = self.members[name]
        member.cluster.bind(self._kernel.now)
        if self._check:
            member.cluster.validate()
        if isinstance(member.says, PlacementReports):
            self._look_later(member)
        elif member.cluster.grew:
            member.cluster.grew = False
            self._operate(member, op.DemandGrew())
        self._account(name)

    def _look(self, member: Member) -> None:
        """The operator looks at its cluster; what it saw may be worth telling early."""
        if isinstance(member.says, PlacementReports):
            for news in member.says.look(EPOCH + self._kernel.now):
                self._operate(member, news)
            self._look_later(member)

    def _look_later(self, member: Member) -> None:
        assert isinstance(member.says, PlacementReports)
        due = max(member.says.next_look() - EPOCH, self._kernel.now)
        if member.look is not None and member.look.active:
            if member.look.due <= due:
                return
            member.look.cancel()
        member.look = self._kernel.at(due, lambda: self._look(member))

    def _account(self, name: str) -> None:
        self._meter.advance(self._kernel.now)
        self.on_change(name)

    # -------------------------------------------------------------------------------------------------------- machines

    def _row(self, translator: Translator, row: Row) -> None:
        if isinstance(row, SaveMachine):
            self._changed(translator, row.machine.id, row.machine)
        elif isinstance(row, SaveRemoval):
            translator.forget(row.machine.id)
            self._changed(translator, row.machine.id, None)

    def _changed(self, translator: Translator, machine: str, after: MachineRecord | None) -> None:
        before = self.machines.get(machine)
        if after is None:
            self.machines.pop(machine, None)
        else:
            self.machines[machine] = after
        if before is None or after is None or before.state != after.state:
            self._since[machine] = self._kernel.now
        self._meter.advance(self._kernel.now)
        self._meter.machine(before, after)
        was = before.cluster if before is not None and before.state in _NODE_STATES else ""
        now = after.cluster if after is not None and after.state in _NODE_STATES else ""
        vanished = after is None or after.state == MachineState.FAILED
        if before is not None and before.state == MachineState.CONFIGURED and vanished:
            self._meter.lost_machines += 1
        if was != now:
            if was:
                site = self.sites_of.get(was, self)
                site._leave(site.members[was], machine)
            if now and after is not None:
                site = self.sites_of.get(now, self)
                site.members[now].cluster.join(machine, translator.shape(after.shape))
                says = site.members[now].says
                if isinstance(says, PlacementReports):
                    says.joined(machine)
                site.demand_changed(now)

    def _leave(self, member: Member, machine: str) -> None:
        cause = member.agent.session.cause_of(machine)
        member.cluster.leave(machine, cause.value if cause else "loss", self._kernel.now)
        if (timer := self._evictions.pop(machine, None)) is not None:
            timer.cancel()
        self._operate(member, op.NodeGone(machine))
        self.demand_changed(member.cluster.name)

    # -------------------------------------------------------------------------------------------------------- sessions

    def deliver(self, session: int, frame: ev.Frame) -> None:
        """A frame leaves the shard."""
        member = self._sessions.get(session)
        if member is None or member.to_operator is None:
            return
        if self._inline:
            self._hear(member, session, frame)
        else:
            member.to_operator.send((session, frame))

    def closed(self, session: int, code: ev.CloseCode, message: str) -> None:
        """The shard ends a stream."""
        member = self._sessions.pop(session, None)
        if member is not None and member.session == session:
            self._hang_up(member)

    def cut(self, name: str) -> None:
        """The operator's connection breaks; the shard notices at once, as a reset stream would show."""
        member = self.members[name]
        member.cut = True
        session = member.session
        self._hang_up(member)
        if session is not None and self._sessions.pop(session, None) is not None:
            self.host.post(ev.SessionClosed(session, "connection reset"))

    def heal(self, name: str) -> None:
        member = self.members[name]
        member.cut = False
        self._operate(member, op.Started())

    def crash(self, *, lose_journal: bool) -> None:
        self.host.crash(lose_journal=lose_journal)
        self._sessions.clear()
        for member in self.members.values():
            self._hang_up(member)

    def restart(self) -> None:
        self.host.start()

    def is_amid(self, what: Amid | None) -> bool:
        """Whether the shard is in the middle of a move: its new machine is on the way, or an old one drains."""
        core = self.host.core
        if core is None:
            return False
        for move in core.read.moves():
            members = move.old if what is Amid.MOVE_DRAINING else (move.new,)
            states = {record.state for key in members if (record := core.read.record(key)) is not None}
            if MachineState.DRAINING in states or (what is Amid.MOVE_BEGUN and states - {MachineState.CONFIGURED}):
                return True
        return False

    def mute(self, name: str, on: bool) -> None:
        """The operator reports no demand although there is some."""
        says = self.members[name].says
        if isinstance(says, SumReports):
            says.mute = on
        else:
            says.talk_nonsense(Untruth.NO_DEMAND if on else None)

    def talk_nonsense(self, name: str, nonsense: Untruth | None) -> None:
        """The operator reports what is not so."""
        says = self.members[name].says
        if isinstance(says, PlacementReports):
            says.talk_nonsense(nonsense)

    def _hang_up(self, member: Member) -> None:
        member.session = None
        self._operate(member, op.Disconnected())

    def _dial(self, member: Member) -> None:
        if member.cut or member.session is not None:
            return
        if not self.host.up:
            self._operate(member, op.Disconnected())
            return
        self._opened += 1
        member.session = session = self._opened
        self._sessions[session] = member
        self._operate(member, op.Connected(session))

    def _hear(self, member: Member, session: int, frame: ev.Frame) -> None:
        if member.session != session:
            return
        if isinstance(frame, ev.NodeState) and isinstance(member.says, PlacementReports):
            member.says.told(frame)
        if (given := heard(frame)) is None:
            return
        if isinstance(frame, ev.ReclaimInstruction):
            self._look(member)  # whether there is room is asked of what is, not of what was
        self._operate(member, given)

    def _operate(self, member: Member, given: op.Event) -> None:
        for output in member.agent.handle(given, self._kernel.now):
            self._do(member, output)
        self._arm(member)

    def _do(self, member: Member, output: Output) -> None:
        match output:
            case Say(event):
                self._say(member, event)
            case op.Dial():
                self._dial(member)
            case op.ReportNodes(session, anew):
                for report in member.says.reports(session, anew, EPOCH + self._kernel.now):
                    self._say(member, report)
            case op.SendRollup(session, timestamp):
                self._say(member, member.says.rollup(session, timestamp, EPOCH + self._kernel.now))
            case op.LoseNode() | op.CloseNode() | op.ReopenNodes():
                self._told(member, output)
            case op.Cordon(machine, on):
                member.cluster.cordon(machine, on)
                if not on:
                    self.demand_changed(member.cluster.name)
            case op.Evict():
                self._evict(member, output)
            case op.StopEvicting(machine):
                if (timer := self._evictions.pop(machine, None)) is not None:
                    timer.cancel()

    def _told(self, member: Member, told: op.LoseNode | op.CloseNode | op.ReopenNodes) -> None:
        says, now = member.says, EPOCH + self._kernel.now
        if not isinstance(says, PlacementReports):
            return
        match told:
            case op.LoseNode(machine):
                says.lose(machine)
            case op.CloseNode(machine, closing):
                says.close(machine, closing, now)
            case op.ReopenNodes():
                says.reopen_all(now)
        self.demand_changed(member.cluster.name)

    def _say(self, member: Member, event: ev.Event) -> None:
        if member.session is None or member.to_shard is None:
            return
        if self._inline:
            self._arrive(member, member.session, event)
        else:
            member.to_shard.send((member.session, event))

    def _arrive(self, member: Member, session: int, event: ev.Event) -> None:
        if session in self._sessions:
            self.host.post(event)

    def _evict(self, member: Member, wanted: op.Evict) -> None:
        """Pods that need longer than the grace stay; the session knows when it is over."""
        empty = member.cluster.is_empty(wanted.machine)
        takes = 0 if empty else member.spec.eviction.sample(self._dice)
        if EPOCH + self._kernel.now + takes > wanted.until:
            return

        def ended() -> None:
            self._evictions.pop(wanted.machine, None)
            member.cluster.evict(wanted.machine, wanted.cause.value, self._kernel.now)
            self.demand_changed(member.cluster.name)
            self._operate(member, op.EvictionEnded(wanted.machine))

        self._evictions[wanted.machine] = self._kernel.after(takes, ended)

    def _arm(self, member: Member) -> None:
        due = member.agent.next_timer()
        if member.timer is not None and member.timer.active:
            if due is not None and member.timer.due == max(due, self._kernel.now):
                return
            member.timer.cancel()
        member.timer = None
        if due is not None:
            member.timer = self._kernel.at(max(due, self._kernel.now), lambda: self._operate(member, op.TimerDue()))

    @property
    def now(self) -> int:
        return self._kernel.now

    def since(self, machine: str) -> int:
        """When the machine's state last changed at its provider."""
        return self._since[machine]

    def validate(self) -> None:
        """Check every part's own invariants and that nodes are exactly the provider's bound hosts."""
        for port in self.ports.values():
            port.provider.validate()
        for name, member in self.members.items():
            member.cluster.validate()
            bound = {
                record.id
                for record in self.host_site.machines.values()
                if record.cluster == name and record.state in _NODE_STATES
            }
            assert bound == set(member.cluster.nodes), f"nodes of {name} are not its machines"
