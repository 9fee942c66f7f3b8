"""A closed loop around a step: actions change machines after given latencies, as a shard and its providers would.

Provision → Creating (stamped with cluster, fingerprint, group) → Idle; Bootstrap → Configuring → Configured (full
stamp); Reclaim and Preempt → Draining → Idle; Delete → Deleting → Speculative. No clock but the one the loop advances.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bigfleet.engine.batches import Conditions, DemandBatch, Stamp
from bigfleet.engine.policy import Policy
from bigfleet.engine.results import Action, ActionKind, Disposition
from tests.oracle.entries import folded_profile
from tests.strategies.builders import (
    CONFIGURED,
    CONFIGURING,
    CREATING,
    DELETING,
    DRAINING,
    IDLE,
    SECOND,
    SPECULATIVE,
    START,
    MachineLine,
    NeedLine,
    batch,
    demand,
    removed,
    stamp_for,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bigfleet.model.profile import Profile
    from tests.oracle.step import OracleResult


@dataclass(frozen=True)
class Latencies:
    """Seconds each transition takes; 0 is done by the next step."""

    create: float = 0
    configure: float = 0
    drain: float = 0
    delete: float = 0


@dataclass
class Loop:
    """Machines, pending transitions and the implementation under test."""

    engine: Any
    machines: dict[str, MachineLine]
    policy: Policy = field(default_factory=Policy)
    latencies: Latencies = field(default_factory=Latencies)
    cycle: float = 10
    now: int = START
    result: OracleResult | None = None
    history: list[Action] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._changed: set[str] = set(self.machines)
        self._due: dict[str, tuple[int, MachineLine]] = {}
        self._profiles: dict[str, Profile] = {}
        self._first = True

    @classmethod
    def of(cls, engine: Any, lines: Iterable[MachineLine], **facts: Any) -> Loop:
        return cls(engine, {line.id: line for line in lines}, **facts)

    def step(
        self, needs: Iterable[NeedLine] | None = None, conditions: Conditions | None = None, empty: tuple[str, ...] = ()
    ) -> list[Action]:
        """One cycle: finish what is due, decide, carry out. Without needs the demand in force stays."""
        if not self._first:
            self.now += round(self.cycle * SECOND)
        self._first = False
        self._settle()
        change: DemandBatch | None = None
        if needs is not None:
            lines = list(needs)
            for line in lines:
                for profile in (line.profile, folded_profile(line.profile)):
                    self._profiles[profile.fingerprint] = profile
            change = demand(*lines, empty=empty)
        self.result = self.engine.step(self._delta(), change, self.policy, self.now, conditions)
        emitted = [a for a in self.result.actions if a.disposition == Disposition.EMIT]
        for action in emitted:
            self._carry_out(action)
        self.history += emitted
        return emitted

    def run(self, cycles: int, **facts: Any) -> list[Action]:
        """So many cycles at unchanged demand; everything they emitted."""
        return [action for _ in range(cycles) for action in self.step(**facts)]

    def lose(self, id: str, to: int = SPECULATIVE) -> None:
        """The host vanishes from under the machine."""
        self._due.pop(id, None)
        self.change(self.machines[id].to(to))

    def change(self, line: MachineLine) -> None:
        self.machines[line.id] = line
        self._changed.add(line.id)

    def drop(self, id: str) -> None:
        del self.machines[id]
        self._changed.add(id)

    def counts(self) -> Counter[str]:
        """Emitted actions per kind so far."""
        return Counter(action.kind.name for action in self.history)

    def in_state(self, state: int, cluster: str | None = None) -> list[str]:
        return sorted(m.id for m in self.machines.values() if m.state == state and cluster in (None, m.cluster))

    def _delta(self) -> Any:
        ids, self._changed = sorted(self._changed), set()
        return batch([self.machines[id] if id in self.machines else removed(id)[0] for id in ids])

    def _settle(self) -> None:
        """Finishes transitions that are due; a chain of zero latencies ends where nothing is pending any more."""
        while due := [id for id, (at, _) in self._due.items() if at <= self.now]:
            for id in due:
                _, line = self._due.pop(id)
                self.change(line)

    def _later(self, line: MachineLine, seconds: float, then: MachineLine) -> None:
        self.change(line)
        self._due[line.id] = (self.now + round(seconds * SECOND), then)

    def _carry_out(self, action: Action) -> None:
        line = self.machines[action.machine]
        if action.kind == ActionKind.DELETE:
            assert line.state == IDLE, (action, line)
            self._later(line.to(DELETING), self.latencies.delete, line.to(SPECULATIVE))
            return
        if action.kind in (ActionKind.RECLAIM, ActionKind.PREEMPT):
            assert line.state == CONFIGURED, (action, line)
            assert line.cluster == action.cluster, (action, line)
            self._later(replace(line, state=DRAINING), self.latencies.drain, line.to(IDLE))
            return
        assert action.need is not None
        profile = self._profiles[action.need.fingerprint]
        marks = Stamp(fingerprint=profile.fingerprint, group=action.need.group)
        if action.kind == ActionKind.PROVISION:
            assert line.state == SPECULATIVE, (action, line)
            self._later(line.to(CREATING, action.cluster, marks), self.latencies.create, line.to(IDLE))
        else:
            assert line.state == IDLE, (action, line)
            ready = line.to(CONFIGURED, action.cluster, stamp_for(profile, action.need.group))
            self._later(line.to(CONFIGURING, action.cluster, marks), self.latencies.configure, ready)
