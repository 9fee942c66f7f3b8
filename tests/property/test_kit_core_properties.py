"""The lifecycle core under random lives: any order of requests, reports, losses, restarts and time.

After every event all invariants hold, fences follow a three-line oracle, an operation id never means two things, and
a client that only ever reads deltas holds exactly what a full List shows.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from bigfleet.model.machine import BOUND, DRIVEN_EDGES, MachineState
from bigfleet.provider.kit.core.core import Lifecycle, Rules, Timeouts
from bigfleet.provider.kit.core.events import (
    ROWS,
    Acknowledge,
    ConfigureRequested,
    CreateRequested,
    DeleteRequested,
    Described,
    DrainRequested,
    Event,
    HostLost,
    MachineBroken,
    NodeReady,
    Refusal,
    Refuse,
    Repaired,
    Restarted,
    SlotsWithdrawn,
    StartWork,
    Tick,
    WorkDone,
    WorkFailed,
)
from bigfleet.provider.kit.core.records import TRANSITIONS, Host, Instance, Kind, MachineRecord, Token
from bigfleet.provider.kit.store import MemoryStore

IDS = [f"m{n}" for n in range(3)]
ids = st.sampled_from(IDS)
ids_and_ghosts = st.sampled_from([*IDS, *IDS, "ghost"])
small = st.integers(0, 2)
extremes = st.sampled_from([2**63 - 1, -1, -(2**63), 0])
shards = st.sampled_from(["s1", "s2"])
tokens = st.one_of(
    st.just(Token()),
    st.just(Token()),
    st.just(Token()),
    st.builds(Token, shards, small, small),
    st.builds(Token, shards, small, small),
    st.builds(Token, st.sampled_from(["s1", ""]), extremes, extremes),
)
clusters = st.sampled_from(["c1", "c2", "c1", "c2", ""])
metadata = st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2)


class Provider(RuleBasedStateMachine):
    works = Bundle("works")

    @initialize(gate=st.booleans(), can_delete=st.booleans())
    def boot(self, gate: bool, can_delete: bool) -> None:
        self.now = 0.0
        self.rules = Rules(
            timeouts=Timeouts(10, 10, 10, 10), readiness_gate=gate, can_delete=can_delete, relist_after=25
        )
        self.store = MemoryStore("gen")
        self.core = Lifecycle(self.rules, "gen")
        self.store.write(self.core.seed(Instance(i, "box", zone="a") for i in IDS))  # type: ignore[arg-type]
        self.marks: dict[tuple[str, str], tuple[int, int]] = {}
        self.operations: dict[str, tuple[str, Kind]] = {}
        self.latest: dict[tuple[str, Kind], str] = {}
        self.mirror: dict[str, MachineRecord] = {}
        self.cursor = b""

    def send(self, event: Event) -> list[object]:
        before = dict(self.core.machines)
        out = self.core.handle(event, self.now)
        self.store.write([row for row in out if isinstance(row, ROWS)])
        for machine_id, record in self.core.machines.items():
            known = before.get(machine_id)
            if known is not None and known.state != record.state and not isinstance(event, MachineBroken | Repaired):
                assert (known.state, record.state) in DRIVEN_EDGES, (known.state, record.state, event)
        return list(out)

    def request(self, event: CreateRequested | ConfigureRequested | DrainRequested | DeleteRequested) -> list[object]:
        before = self.core.get(event.machine_id)
        out = self.send(event)
        answer = out[-1]
        assert isinstance(answer, Acknowledge | Refuse)
        assert sum(isinstance(i, Acknowledge | Refuse) for i in out) == 1
        token, key = event.token, (event.token.shard_id, event.machine_id)
        unbindable = isinstance(event, ConfigureRequested) and not event.cluster_id and token.problem() is None
        if isinstance(answer, Refuse) and answer.refusal in (Refusal.INVALID, Refusal.UNSUPPORTED) and not unbindable:
            return []
        newer = token.absent or key not in self.marks or (token.epoch, token.sequence) > self.marks[key]
        assert newer == (not (isinstance(answer, Refuse) and answer.refusal is Refusal.FENCED))
        if newer and not token.absent:
            self.marks[key] = (token.epoch, token.sequence)
        kind = {CreateRequested: Kind.CREATE, ConfigureRequested: Kind.CONFIGURE, DrainRequested: Kind.DRAIN}.get(
            type(event), Kind.DELETE
        )
        if newer and before is not None and (not isinstance(event, ConfigureRequested) or event.cluster_id):
            self.check_position(event, kind, before, answer)
        if isinstance(answer, Refuse):
            assert self.core.get(event.machine_id) is before, "a refusal moves nothing"
            return []
        self.latest[event.machine_id, kind] = answer.operation_id
        assert self.operations.setdefault(answer.operation_id, (event.machine_id, kind)) == (event.machine_id, kind)
        assert answer.machine.state in TRANSITIONS[kind][1:]
        return [i for i in out if isinstance(i, StartWork)]

    def check_position(self, event: object, kind: Kind, before: MachineRecord, answer: Acknowledge | Refuse) -> None:
        recorded = self.latest.get((before.id, kind))
        edge = TRANSITIONS[kind]
        foreign = isinstance(event, ConfigureRequested) and before.state in BOUND and before.cluster != event.cluster_id
        if before.state == edge.source:
            assert isinstance(answer, Acknowledge) and answer.operation_id != recorded
        elif recorded and before.state in (edge.via, edge.target) and not foreign:
            assert isinstance(answer, Acknowledge) and answer.operation_id == recorded
        else:
            assert isinstance(answer, Refuse) and answer.refusal is Refusal.OUT_OF_POSITION

    @rule(target=works, machine_id=ids_and_ghosts, token=tokens)
    def create(self, machine_id: str, token: Token) -> object:
        return self.request(CreateRequested(machine_id, token))

    @rule(target=works, machine_id=ids_and_ghosts, cluster=clusters, kept=metadata, token=tokens)
    def configure(self, machine_id: str, cluster: str, kept: dict[str, str], token: Token) -> object:
        return self.request(ConfigureRequested(machine_id, cluster, b"blob", kept, token))

    @rule(target=works, machine_id=ids_and_ghosts, grace=st.integers(-1, 5), token=tokens)
    def drain(self, machine_id: str, grace: int, token: Token) -> object:
        return self.request(DrainRequested(machine_id, grace, token))

    @rule(target=works, machine_id=ids_and_ghosts, token=tokens)
    def delete(self, machine_id: str, token: Token) -> object:
        return self.request(DeleteRequested(machine_id, token))

    @rule(work=works, outcome=st.sampled_from(["done", "done", "done", "failed", "ready"]))
    def report_any(self, work: list[StartWork], outcome: str) -> None:
        self.report(work, outcome)

    def report(self, work: list[StartWork], outcome: str) -> None:
        for started in work:
            machine_id, operation_id = started.machine.id, started.operation_id
            if outcome == "failed":
                self.send(WorkFailed(machine_id, operation_id, "no"))
            elif outcome == "ready":
                self.send(NodeReady(machine_id, operation_id))
            else:
                host = Host("acme", operation_id) if started.kind is Kind.CREATE else None
                self.send(WorkDone(machine_id, operation_id, host))

    @rule(target=works, machine_id=ids, cluster=st.sampled_from(["c1", "c2"]), done=st.booleans())
    def step_forward(self, machine_id: str, cluster: str, done: bool) -> object:
        """Take the machine one legal step on, so that walks reach deep states often."""
        record = self.core.get(machine_id)
        if record is None or record.state not in (MachineState.SPECULATIVE, MachineState.IDLE):
            return self.request(DrainRequested(machine_id))
        if record.state is MachineState.SPECULATIVE:
            work = self.request(CreateRequested(machine_id))
        else:
            work = self.request(ConfigureRequested(machine_id, cluster, b"blob"))
        if done:
            self.report(work, "done")  # type: ignore[arg-type]
            self.report(work, "ready")  # type: ignore[arg-type]
        return work

    @rule(machine_id=ids, event=st.sampled_from(["lost", "broken", "repaired", "rehosted", "withdrawn"]))
    def disturb(self, machine_id: str, event: str) -> None:
        host = Host("acme", "again") if event == "rehosted" else None
        happening: Event = {
            "lost": HostLost(machine_id, "reclaimed"),
            "broken": MachineBroken(machine_id, "fan"),
            "withdrawn": SlotsWithdrawn((machine_id,)),
        }.get(event, Repaired(machine_id, host))
        self.send(happening)

    @rule(absent=st.sampled_from([None, *IDS]), price=st.sampled_from([0.0, 1.0]), complete=st.booleans())
    def describe(self, absent: str | None, price: float, complete: bool) -> None:
        hosts = {m.id: m.host for m in self.core.machines.values()}
        instances = [Instance(i, "box", zone="a", price_per_hour=price, host=hosts.get(i)) for i in IDS if i != absent]
        self.send(Described(instances, self.core.changes.head, complete))

    @rule(seconds=st.sampled_from([1.0, 5.0, 40.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.send(Tick())
        due = self.core.next_deadline()
        assert due is None or due > self.now

    @rule(reattach=st.booleans())
    def restart(self, reattach: bool) -> None:
        before = self.core.page()
        self.core = Lifecycle(self.rules, "gen", self.store.load())
        after = self.core.page()
        assert {m.id: m for m in after.machines} == {m.id: m for m in before.machines}
        assert after.cursor == before.cursor
        self.send(Restarted(reattach))

    @rule(cap=st.integers(0, 3))
    def read_changes(self, cap: int) -> None:
        more = True
        while more:
            page = self.core.page(max_results=cap, since=self.cursor)
            if page.full and not self.cursor:
                self.mirror.clear()
            self.mirror |= {m.id: m for m in page.machines}
            for machine_id in page.removed_ids:
                self.mirror.pop(machine_id, None)
            self.cursor, more = page.cursor, page.more
        assert self.mirror == dict(self.core.machines)

    @invariant()
    def consistent(self) -> None:
        if hasattr(self, "core"):
            self.core.validate()
            for shard_id, machine_id in self.marks:
                assert self.core.fences.mark(shard_id, machine_id) == self.marks[shard_id, machine_id]
            stuck = [m for m in self.core.machines.values() if m.state is MachineState.FAILED and not m.last_error]
            assert not stuck


TestProviderLives = Provider.TestCase
TestProviderLives.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
