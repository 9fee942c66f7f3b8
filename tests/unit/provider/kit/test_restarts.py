"""What a provider process was in the middle of survives its restart: graces, nodes that are waited for, stock-outs."""

from __future__ import annotations

from collections.abc import Sequence

from bigfleet.model.machine import MachineState
from bigfleet.provider.kit.core.core import Lifecycle, Rules, Snapshot, Timeouts
from bigfleet.provider.kit.core.events import (
    Acknowledge,
    ConfigureRequested,
    ConfirmReady,
    CreateRequested,
    DrainRequested,
    Event,
    Instruction,
    InterruptionNoticed,
    NodeReady,
    Refusal,
    Refuse,
    Restarted,
    SaveFence,
    SaveMachine,
    SaveOperation,
    StartWork,
    Tick,
    WorkDone,
    WorkFailed,
)
from bigfleet.provider.kit.core.records import Host, Instance, MachineRecord

S = MachineState
HOST = Host("acme", "i-1")
TIMEOUTS = Timeouts(create=300, configure=300, drain=600, delete=300)


class Provider:
    """A core and the rows it wanted kept, so that it can be started again from them."""

    def __init__(self, *ids: str, readiness_gate: bool = False) -> None:
        self._rules = Rules(timeouts=TIMEOUTS, readiness_gate=readiness_gate)
        self._machines: dict[str, MachineRecord] = {}
        self._operations: dict[tuple[str, str], SaveOperation] = {}
        self._fences: dict[tuple[str, str], SaveFence] = {}
        self.core = Lifecycle(self._rules, "g1")
        self._keep(self.core.seed(Instance(i, "box", zone="a", price_per_hour=0.1) for i in ids))

    def send(self, event: Event, now: float) -> list[Instruction]:
        out = self.core.handle(event, now)
        self.core.validate()
        self._keep(out)
        return out

    def restart(self, now: float, *, reattach: bool) -> list[Instruction]:
        kept = Snapshot(
            "g1", list(self._machines.values()), list(self._fences.values()), list(self._operations.values())
        )
        self.core = Lifecycle(self._rules, "g1", kept)
        return self.send(Restarted(reattach), now)

    def bound(self, machine: str, now: float) -> None:
        for event in (CreateRequested(machine), ConfigureRequested(machine, "c", b"blob")):
            ack = self.send(event, now)[-1]
            assert isinstance(ack, Acknowledge)
            self.send(WorkDone(machine, ack.operation_id, HOST), now)

    def state(self, machine: str) -> MachineState:
        record = self.core.get(machine)
        assert record is not None
        return record.state

    def _keep(self, rows: Sequence[Instruction]) -> None:
        for row in rows:
            match row:
                case SaveMachine():
                    self._machines[row.machine.id] = row.machine
                case SaveOperation():
                    self._operations[row.machine_id, row.kind] = row
                case SaveFence():
                    self._fences[row.shard_id, row.machine_id] = row
                case _:
                    pass


def test_the_grace_of_a_drain_goes_on_where_it_was() -> None:
    provider = Provider("m")
    provider.bound("m", 0)
    provider.send(DrainRequested("m", grace_seconds=1000), 100)
    [work] = [i for i in provider.restart(700, reattach=True) if isinstance(i, StartWork)]
    assert work.grace_seconds == 400 and work.machine.grace_seconds == 400
    assert work.deadline == 100 + 1000 + TIMEOUTS.drain
    provider.send(Tick(), 100 + 1000 + TIMEOUTS.drain - 1)
    assert provider.state("m") == S.DRAINING
    provider.send(Tick(), 100 + 1000 + TIMEOUTS.drain)
    assert provider.state("m") == S.FAILED


def test_a_host_that_has_its_blob_is_waited_for_and_not_called_a_failure() -> None:
    provider = Provider("m", readiness_gate=True)
    create = provider.send(CreateRequested("m"), 0)[-1]
    assert isinstance(create, Acknowledge)
    provider.send(WorkDone("m", create.operation_id, HOST), 0)
    configure = provider.send(ConfigureRequested("m", "c", b"blob"), 10)[-1]
    assert isinstance(configure, Acknowledge)
    provider.send(WorkDone("m", configure.operation_id), 20)
    again = provider.restart(100, reattach=False)
    [confirm] = [i for i in again if isinstance(i, ConfirmReady)]
    assert not [i for i in again if isinstance(i, StartWork)]
    assert confirm.deadline == 10 + TIMEOUTS.configure
    provider.send(NodeReady("m", configure.operation_id), 110)
    assert provider.state("m") == S.CONFIGURED


def test_what_is_sold_out_is_refused_in_words_and_comes_back_by_itself() -> None:
    provider = Provider("m", "n")
    ack = provider.send(CreateRequested("m"), 0)[-1]
    assert isinstance(ack, Acknowledge)
    provider.send(WorkFailed("m", ack.operation_id, "no box left", retry_after=60), 5)
    assert provider.state("m") == S.FAILED
    record = provider.core.get("m")
    assert record is not None and "sold out, try again in 60 s: no box left" in record.last_error
    refusal = provider.send(CreateRequested("n"), 10)[-1]
    assert isinstance(refusal, Refuse) and refusal.refusal is Refusal.SOLD_OUT
    assert provider.state("n") == S.SPECULATIVE
    # A restart forgets neither the stock-out nor the slot.
    provider.restart(20, reattach=False)
    assert isinstance(provider.send(CreateRequested("n"), 30)[-1], Refuse)
    assert provider.core.next_deadline() == 65
    provider.send(Tick(), 65)
    assert provider.state("m") == S.SPECULATIVE
    assert isinstance(provider.send(CreateRequested("n"), 66)[-1], Acknowledge)


def test_a_notice_of_interruption_is_published_once_and_ends_with_the_host() -> None:
    provider = Provider("m")
    assert provider.send(InterruptionNoticed("m", 500.0), 0) == [], "a slot has no host to lose"
    provider.bound("m", 0)
    [saved] = provider.send(InterruptionNoticed("m", 500.0), 10)
    assert isinstance(saved, SaveMachine) and saved.machine.interruption_at == 500.0
    assert provider.send(InterruptionNoticed("m", 500.0), 11) == []
    provider.restart(20, reattach=True)
    record = provider.core.get("m")
    assert record is not None and record.interruption_at == 500.0
