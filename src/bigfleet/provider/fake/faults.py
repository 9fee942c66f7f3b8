"""What goes wrong on purpose: standing rules, one-shot faults, failure rates. Pure; the dice are handed in.

A rule matches a transition by cluster id, machine label or machine id. One-shots come first, then rules, then rates,
so a test that asks for one failure gets exactly that one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import StrEnum

from bigfleet.provider.fake.fields import Fields
from bigfleet.provider.kit.core.records import Kind, MachineRecord

TRANSITIONS = {kind.value: kind for kind in Kind}


class Effect(StrEnum):
    """What happens to the transition."""

    FAIL = "fail"  # the backend answers with an error
    HANG = "hang"  # the backend never answers
    LATE = "late"  # the backend succeeds, but only after the timeout
    UNREADY = "unready"  # the backend succeeds, the node never becomes Ready
    SLOW = "slow"  # the backend succeeds after `seconds`
    SMALLER = "smaller"  # the host that comes has `allocatable`, whatever its slot says


EFFECTS = {effect.value: effect for effect in Effect}


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong. Empty selectors match everything."""

    transition: Kind
    effect: Effect
    machine: str = ""
    cluster: str = ""
    label: str = ""
    error: str = "injected fault"
    seconds: float = 0.0
    allocatable: tuple[tuple[str, str], ...] = ()

    def matches(self, kind: Kind, machine: MachineRecord) -> bool:
        if kind is not self.transition:
            return False
        if self.machine and self.machine != machine.id:
            return False
        if self.cluster and self.cluster != machine.cluster:
            return False
        if self.label:
            key, _, value = self.label.partition("=")
            return dict(machine.shape.labels).get(key) == value
        return True


@dataclass(slots=True)
class FaultBook:
    """All faults in force."""

    rules: list[Fault] = field(default_factory=list)
    rates: dict[Kind, float] = field(default_factory=dict)
    _once: list[tuple[Fault, int]] = field(default_factory=list)

    def next_time(self, fault: Fault, count: int = 1) -> None:
        """Apply `fault` to the next `count` transitions it matches."""
        self._once.append((fault, count))

    def strike(self, kind: Kind, machine: MachineRecord, dice: random.Random) -> Fault | None:
        """The fault this transition suffers, if any."""
        for place, (fault, left) in enumerate(self._once):
            if fault.matches(kind, machine):
                if left > 1:
                    self._once[place] = (fault, left - 1)
                else:
                    del self._once[place]
                return fault
        for fault in self.rules:
            if fault.matches(kind, machine):
                return fault
        # Every transition has dice of its own: whether they are thrown shifts nobody else's luck.
        if kind in self.rates and dice.random() < self.rates[kind]:
            return Fault(kind, Effect.FAIL, error=f"injected {kind} failure at rate {self.rates[kind]:g}")
        return None


def read_fault(fields: Fields) -> Fault:
    """One entry of a catalogue's `faults`, also the body of the `fault-next` command."""
    fault = Fault(
        transition=fields.choice("transition", TRANSITIONS),
        effect=fields.choice("effect", EFFECTS),
        machine=fields.text("machine", ""),
        cluster=fields.text("cluster", ""),
        label=fields.text("label", "", pattern=r"|[^=]+=.*", accepted="key=value"),
        error=fields.text("error", "injected fault", pattern=r"(?s).+", accepted="a non-empty text"),
        seconds=fields.seconds("seconds", 0.0),
        allocatable=tuple(sorted(fields.quantities("allocatable").items())),
    )
    if fault.effect is Effect.UNREADY and fault.transition is not Kind.CONFIGURE:
        raise fields.refuse(
            "effect", "unready", "unready only for transition configure: other transitions have no node"
        )
    if (fault.effect is Effect.SMALLER) != bool(fault.allocatable):
        raise fields.refuse("allocatable", dict(fault.allocatable), "amounts with effect smaller, and with no other")
    if fault.effect is Effect.SMALLER and fault.transition is not Kind.CREATE:
        raise fields.refuse("effect", "smaller", "smaller only for transition create: hosts do not shrink")
    return fault


REFERENCE_FAULTS = (
    Fault(Kind.CREATE, Effect.FAIL, label="conformance.fault/create=error", error="injected create failure"),
    Fault(Kind.CONFIGURE, Effect.FAIL, cluster="fault-error", error="injected configure failure"),
    Fault(Kind.CONFIGURE, Effect.HANG, cluster="fault-timeout"),
    Fault(Kind.CONFIGURE, Effect.LATE, cluster="fault-slow-ok"),
    Fault(Kind.DRAIN, Effect.FAIL, cluster="fault-drain-error", error="injected drain failure"),
    Fault(Kind.CONFIGURE, Effect.UNREADY, cluster="fault-readiness-block"),
)
"""The selectors of the reference's fault provider, which the conformance suite's fault lane speaks."""
