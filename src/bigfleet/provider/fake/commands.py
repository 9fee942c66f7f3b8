"""Commands that change the pretend world while it runs: what `inject`, a catalogue's `schedule` and the simulator send.

A command is parsed completely before anything happens. Machines are chosen by id, or by offering and zone, lowest ids
first, so that the same command on the same fleet always hits the same machines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.provider.fake.faults import TRANSITIONS, Fault, read_fault
from bigfleet.provider.fake.fields import CatalogueError, Fields
from bigfleet.provider.kit.core.records import Kind, MachineRecord


@dataclass(frozen=True, slots=True)
class Choice:
    """Which machines a command is about. `count` 0 means all of them; `fraction` counts as that share of them."""

    machine: str = ""
    offering: str = ""
    zone: str = ""
    count: int = 0
    fraction: float = 1.0

    def pick(self, zones: Mapping[str, str]) -> list[str]:
        """The chosen ids among candidates, given as machine id to zone."""
        found = sorted(machine_id for machine_id, zone in zones.items() if self._fits(machine_id, zone))
        share = found[: int(len(found) * self.fraction)] if self.fraction < 1.0 else found
        return share[: self.count] if self.count else share

    def _fits(self, machine_id: str, zone: str) -> bool:
        if self.machine:
            return machine_id == self.machine
        if self.offering and not machine_id.startswith(f"{self.offering}-{zone}-"):
            return False
        return not self.zone or zone == self.zone

    def __str__(self) -> str:
        words = [f"{name} {value}" for name in ("machine", "offering", "zone") if (value := getattr(self, name))]
        return ", ".join(words) or "any machine"


@dataclass(frozen=True, slots=True)
class FaultNext:
    """The next `count` matching transitions suffer the fault."""

    fault: Fault
    count: int = 1


@dataclass(frozen=True, slots=True)
class SetFailureRate:
    transition: Kind
    rate: float


@dataclass(frozen=True, slots=True)
class LoseHosts:
    """Hosts vanish without a word; their records leave the List."""

    choice: Choice


@dataclass(frozen=True, slots=True)
class BreakMachines:
    """Machines stay listed but become FAILED."""

    choice: Choice
    error: str = "injected hardware fault"


@dataclass(frozen=True, slots=True)
class RepairMachines:
    """FAILED machines become usable again."""

    choice: Choice


@dataclass(frozen=True, slots=True)
class InterruptSpot:
    """Spot hosts get their notice now and vanish when it is over."""

    choice: Choice


@dataclass(frozen=True, slots=True)
class ShrinkQuota:
    """Unrealised slots are withdrawn."""

    choice: Choice


@dataclass(frozen=True, slots=True)
class RestoreQuota:
    """Withdrawn slots are offered again."""

    choice: Choice


@dataclass(frozen=True, slots=True)
class CloseZone:
    """A zone is gone: its hosts vanish, and none of its slots can be had until it is open again."""

    zone: str


@dataclass(frozen=True, slots=True)
class OpenZone:
    """A closed zone has its slots for sale again."""

    zone: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Transitions of one kind stay under way until released: the staged mode of a test."""

    transition: Kind


@dataclass(frozen=True, slots=True)
class Release:
    """Held transitions of one kind go on, and new ones are no longer held."""

    transition: Kind


Command = (
    FaultNext
    | SetFailureRate
    | LoseHosts
    | BreakMachines
    | RepairMachines
    | InterruptSpot
    | ShrinkQuota
    | RestoreQuota
    | CloseZone
    | OpenZone
    | Hold
    | Release
)


def parse_command(document: object, where: str = "command") -> Command:
    """A command from its mapping: `{do: lose-hosts, zone: a, count: 3}`."""
    return read_command(Fields(where, document))


def read_command(fields: Fields) -> Command:
    """The command in a mapping that may already have been asked for other fields."""
    command = fields.choice("do", _READERS)(fields)
    fields.done()
    return command


def pick(command: Command, machines: Mapping[str, MachineRecord]) -> list[MachineRecord]:
    """The machines a command is about; none at all is an error, because the command would do nothing."""
    assert isinstance(command, LoseHosts | BreakMachines | RepairMachines | InterruptSpot | ShrinkQuota)
    eligible, needed = _ELIGIBLE[type(command)]
    zones = {record.id: record.shape.zone for record in machines.values() if eligible(record)}
    found = command.choice.pick(zones)
    if not found:
        raise CatalogueError(f"no machine fits {command.choice}; {needed}")
    return [machines[machine_id] for machine_id in found]


def _has_host(record: MachineRecord) -> bool:
    return record.host is not None


def _is_spot_host(record: MachineRecord) -> bool:
    return record.host is not None and record.shape.capacity_type == CapacityType.SPOT


_ELIGIBLE: dict[type, tuple[Callable[[MachineRecord], bool], str]] = {
    LoseHosts: (_has_host, "give machines that have a host"),
    BreakMachines: (lambda record: record.state != MachineState.FAILED, "give machines that are not FAILED"),
    RepairMachines: (lambda record: record.state == MachineState.FAILED, "give machines that are FAILED"),
    InterruptSpot: (_is_spot_host, "give spot machines that have a host"),
    ShrinkQuota: (lambda record: record.state == MachineState.SPECULATIVE, "give slots that are SPECULATIVE"),
}


def _choice(fields: Fields) -> Choice:
    return Choice(
        machine=fields.text("machine", ""),
        offering=fields.text("offering", ""),
        zone=fields.text("zone", ""),
        count=fields.whole("count", 0),
        fraction=fields.number("fraction", 1.0, high=1.0),
    )


def _fault_next(fields: Fields) -> Command:
    return FaultNext(read_fault(fields), fields.whole("count", 1, low=1))


def _failure_rate(fields: Fields) -> Command:
    return SetFailureRate(fields.choice("transition", TRANSITIONS), fields.number("rate", high=1.0))


def _break(fields: Fields) -> Command:
    error = fields.text("error", "injected hardware fault", pattern=r"(?s).+", accepted="a non-empty text")
    return BreakMachines(_choice(fields), error)


_READERS: dict[str, Callable[[Fields], Command]] = {
    "fault-next": _fault_next,
    "failure-rate": _failure_rate,
    "lose-hosts": lambda fields: LoseHosts(_choice(fields)),
    "break": _break,
    "repair": lambda fields: RepairMachines(_choice(fields)),
    "interrupt": lambda fields: InterruptSpot(_choice(fields)),
    "shrink-quota": lambda fields: ShrinkQuota(_choice(fields)),
    "restore-quota": lambda fields: RestoreQuota(_choice(fields)),
    "close-zone": lambda fields: CloseZone(fields.text("zone")),
    "open-zone": lambda fields: OpenZone(fields.text("zone")),
    "hold": lambda fields: Hold(fields.choice("transition", TRANSITIONS)),
    "release": lambda fields: Release(fields.choice("transition", TRANSITIONS)),
}
