"""Decisions in plain words: what was done, to how many machines of what kind, for whom, and why that and not another.

Pure: actions and what was known when they ended go in, sentences come out. Equal things that happen close together are
one sentence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from bigfleet.demo.watching import SeenAction, SeenMachine, SeenNeed, Sight
from bigfleet.engine.results import ActionKind, UnmetReason
from bigfleet.model.machine import CapacityType

NANOSECONDS = 1_000_000_000
# Actions of one kind that end within so long of each other are told together.
TOGETHER = 4 * NANOSECONDS
KEPT_LINES = 200

KINDS = {
    CapacityType.BARE_METAL: "on-prem",
    CapacityType.RESERVED: "reserved",
    CapacityType.ON_DEMAND: "on-demand",
    CapacityType.SPOT: "spot",
    CapacityType.UNSPECIFIED: "unpriced",
}
REASONS = {
    UnmetReason.NONE: "is met",
    UnmetReason.PRIORITY_STARVED: "others of equal or higher priority hold every machine that fits",
    UnmetReason.NO_MATCHING_SUPPLY: "no machine fits",
    UnmetReason.TOPOLOGY_UNSATISFIABLE: "no single rack can hold it",
    UnmetReason.PREEMPTION_EXHAUSTED: "even taking machines from others is not enough",
    UnmetReason.RESOURCE_NOT_PUBLISHED: "no machine offers what it asks for",
    UnmetReason.SPREAD_UNSATISFIABLE: "free machines would break its spread",
    UnmetReason.CLUSTER_DISCONNECTED: "its cluster is not connected",
    UnmetReason.ACQUISITION_HELD: "the shard waits until it can trust its inventory",
    UnmetReason.SUPPLY_BACKED_OFF: "machines that fit failed a moment ago and are left alone",
    UnmetReason.AWAITING_DRAIN: "machines are being drained for it",
}
NAMED_PRIORITIES = ((1_000_000, "critical"), (1000, "service"), (500, "web"), (0, "batch"))


@dataclass(frozen=True, slots=True)
class Line:
    """One sentence of the story. `who` is "you" for what the audience did and "fleet" for what the shard did."""

    at: int
    text: str
    who: str = "fleet"
    good: bool = True


@dataclass(frozen=True, slots=True)
class Deed:
    """The same done to several machines, from `at` until `last`."""

    at: int
    last: int
    kind: ActionKind
    cluster: str
    beneficiary: str
    priority: int
    interruption: float
    capacity: CapacityType
    instance_type: str
    error: str
    zones: frozenset[str]
    machines: int
    dollars: float

    def same(self, other: Deed) -> bool:
        """Whether both make one sentence."""
        return other.at - self.last <= TOGETHER and self._key() == other._key()

    def _key(self) -> tuple[object, ...]:
        return (self.kind, self.cluster, self.beneficiary, self.capacity, self.instance_type, self.error)

    def __add__(self, other: Deed) -> Deed:
        return replace(
            self,
            last=max(self.last, other.last),
            zones=self.zones | other.zones,
            machines=self.machines + other.machines,
            dollars=self.dollars + other.dollars,
        )


class Story:
    """The last lines, newest first. Remembers needs and machines, because actions may outlive both."""

    def __init__(self) -> None:
        self._told: deque[Deed | Line] = deque(maxlen=KEPT_LINES)
        self._needs: dict[tuple[str, str], SeenNeed] = {}
        self._by_fingerprint: dict[str, SeenNeed] = {}
        self._machines: dict[str, SeenMachine] = {}

    def say(self, at: int, text: str, *, good: bool = True) -> None:
        """The audience did something."""
        self._told.appendleft(Line(at, text, "you", good))

    def follow(self, sight: Sight) -> None:
        """Take in what the shard did since the last look."""
        for need in sight.needs:
            self._needs[need.cluster, need.fingerprint] = need
            self._by_fingerprint[need.fingerprint] = need
        self._machines.update(sight.by_id)
        for action in sight.actions:
            deed = self._deed(action)
            if deed is not None:
                self._tell(deed)

    @property
    def lines(self) -> list[Line]:
        return [
            each if isinstance(each, Line) else Line(each.at, sentence(each), good=not each.error)
            for each in self._told
        ]

    def _tell(self, deed: Deed) -> None:
        for place, earlier in enumerate(self._told):
            if isinstance(earlier, Line):
                break
            if earlier.same(deed):
                self._told[place] = earlier + deed
                return
        self._told.appendleft(deed)

    def _deed(self, action: SeenAction) -> Deed | None:
        machine = self._machines.get(action.machine)
        if machine is None or action.outcome in ("cancelled", "suppressed", "dryrun"):
            return None
        need = self._needs.get((action.cluster, action.fingerprint)) or self._by_fingerprint.get(action.fingerprint)
        return Deed(
            at=action.at,
            last=action.at,
            kind=ActionKind(action.kind),
            cluster=action.cluster,
            beneficiary=need.cluster if need is not None else "",
            priority=need.priority if need is not None else 0,
            interruption=need.interruption if need is not None else 0.0,
            capacity=machine.kind,
            instance_type=machine.instance_type,
            error="" if action.outcome == "success" else action.error or action.outcome,
            zones=frozenset({machine.zone}),
            machines=1,
            dollars=machine.price,
        )


def sentence(deed: Deed) -> str:
    """The deed as one sentence, with its reason."""
    what, where = _what(deed), f"in {listed(deed.zones)}"
    if deed.error:
        return f"failed to {_INFINITIVES[deed.kind]} {what} {where}: {deed.error}"
    if deed.kind is ActionKind.BOOTSTRAP:
        return f"gave {deed.cluster} {what} {where}: idle, and the cheapest that fits"
    if deed.kind is ActionKind.PROVISION:
        return f"bought {what} {where} for {deed.cluster}, ${deed.dollars:.2f}/h: {_why_bought(deed)}"
    if deed.kind is ActionKind.PREEMPT:
        whom = f"the {_priority(deed.priority)} job of {deed.beneficiary}" if deed.beneficiary else "a more urgent job"
        return f"took {what} {where} from {deed.cluster} for {whom}"
    if deed.kind is ActionKind.RECLAIM:
        return f"took back {what} {where}: {deed.cluster} no longer needs {'it' if deed.machines == 1 else 'them'}"
    return f"released {what} {where}, unused for a while: saves ${deed.dollars:.2f}/h"


def shortfall(need: SeenNeed) -> str:
    """What is missing, and why."""
    missing = ", ".join(f"{amount} {_RESOURCES.get(name, name)}" for name, amount in need.missing.to_wire().items())
    reason = "its operator cannot render user data" if need.reason is None else REASONS[need.reason]
    return f"{need.cluster} ({_priority(need.priority)}) is short of {missing or 'machines'}: {reason}"


def listed(names: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    ordered: Sequence[str] = sorted(names)
    return " and ".join(part for part in (", ".join(ordered[:-1]), *ordered[-1:]) if part)


_INFINITIVES = {
    ActionKind.BOOTSTRAP: "bind",
    ActionKind.PROVISION: "buy",
    ActionKind.PREEMPT: "drain",
    ActionKind.RECLAIM: "drain",
    ActionKind.DELETE: "release",
}
_RESOURCES = {"cpu": "vCPU", "memory": "memory", "nvidia.com/gpu": "GPU"}


def _what(deed: Deed) -> str:
    return f"{deed.machines} {KINDS[deed.capacity]} {deed.instance_type}"


def _priority(priority: int) -> str:
    return next(name for least, name in NAMED_PRIORITIES if priority >= least)


def _why_bought(deed: Deed) -> str:
    if deed.capacity is CapacityType.SPOT:
        return "nothing idle fits, and spot is worth its risk"
    if deed.interruption > 0:
        return f"nothing idle fits, and an interruption would cost ${deed.interruption:,.0f}"
    return "nothing idle and no spot fits"
