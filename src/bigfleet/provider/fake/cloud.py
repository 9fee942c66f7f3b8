"""The pretend backend: how long work takes, what goes wrong with it, and what happens to hosts by themselves.

Pure: the driver brings the instant and carries out what comes back, on a virtual clock or in a process. Every draw is
keyed by (seed, machine, how many times this was asked of it), so luck does not depend on the order in which machines
are served: one seed gives one fate per machine.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from msgspec import Struct

from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.provider.fake.catalogue import Catalogue
from bigfleet.provider.fake.commands import (
    BreakMachines,
    CloseZone,
    Command,
    FaultNext,
    Hold,
    InterruptSpot,
    LoseHosts,
    OpenZone,
    Release,
    RepairMachines,
    RestoreQuota,
    SetFailureRate,
    ShrinkQuota,
    pick,
)
from bigfleet.provider.fake.faults import Effect, FaultBook
from bigfleet.provider.fake.fields import CatalogueError
from bigfleet.provider.fake.limits import TokenBucket
from bigfleet.provider.kit.core.events import (
    Described,
    Event,
    HostLost,
    InterruptionNoticed,
    MachineBroken,
    Repaired,
    SlotsWithdrawn,
)
from bigfleet.provider.kit.core.records import Instance, Kind, MachineRecord
from bigfleet.virtual.kernel import SECOND

NOTICED_RISK = 0.99
"""The interruption probability a spot host publishes once its notice has come."""

_LATE_SECONDS = 1.0
_HOUR = 3600.0


class Outcome(Struct, frozen=True):
    """What one piece of work will come to. `hangs`: the backend never answers; `held`: not before a release."""

    seconds: float
    ready_seconds: float = 0.0
    error: str = ""
    hangs: bool = False
    never_ready: bool = False
    stubborn: bool = False
    held: bool = False
    # What the host really offers, where that is not what its slot does.
    allocatable: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class _Notice:
    machine_id: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class _Loss:
    machine_id: str
    incarnation: int
    reason: str
    broken: bool = False


@dataclass(frozen=True, slots=True)
class _Restore:
    machine_id: str


@dataclass(frozen=True, slots=True)
class _Mend:
    """What was bought while its zone was gone failed for that alone, and can be had again."""

    machine_id: str


_Fate = _Notice | _Loss | _Restore | _Mend | Command
_MEND_AGAIN_SECONDS = 0.1


class Cloud:
    """One pretend backend for one catalogue."""

    def __init__(self, catalogue: Catalogue, now: float) -> None:
        self.catalogue = catalogue
        self.faults = FaultBook(list(catalogue.faults), dict(catalogue.failure_rates))
        self.holding: set[Kind] = set()
        self.complaints: list[str] = []
        self._limits = {kind: TokenBucket(limit, now) for kind, limit in catalogue.rate_limits.items()}
        self._asked: dict[tuple[str, str], int] = {}
        self._incarnations: dict[str, int] = {}
        self._withdrawn: set[str] = set()
        # Hosts that publish something else than their slots offer.
        self._altered: set[str] = set()
        self._closed: set[str] = set()
        self._refused: set[str] = set()
        self._agenda: list[tuple[float, int, _Fate]] = []
        self._entries = 0
        for scheduled in catalogue.schedule:
            self._schedule(now + scheduled.at_seconds, scheduled.command)

    def instances(self) -> list[Instance]:
        """Every slot and host there is, as the kit's `describe` reports them."""
        catalogue = self.catalogue
        return [
            instance
            for offering in catalogue.offerings
            for instance in offering.instances(catalogue.provider)
            if instance.id not in self._withdrawn
        ]

    def begin(self, kind: Kind, machine: MachineRecord, now: float) -> Outcome:
        """Decide what this transition will come to."""
        dice = self._dice(kind, machine.id)
        latencies = self.catalogue.latencies
        seconds = latencies.of(kind).sample(dice) / SECOND
        ready = latencies.ready.sample(dice) / SECOND if kind is Kind.CONFIGURE else 0.0
        fault = self.faults.strike(kind, machine, dice)
        wait = self._limits[kind].take(now) if kind in self._limits else 0.0
        held = kind in self.holding
        if kind is Kind.DELETE and machine.id in self._altered:
            self._altered.discard(machine.id)
            # What is for sale is what the offering says, not what the last host was.
            self._schedule(now + wait + seconds + 0.001, _Restore(machine.id))
        if kind is Kind.CREATE and machine.shape.zone in self._closed:  # bought just before it was withdrawn
            self._refused.add(machine.id)
            return Outcome(seconds, error=f"zone {machine.shape.zone} is gone")
        if wait and self.catalogue.rate_limits[kind].fail:
            return Outcome(
                0.0, error=f"rate limit exceeded: more than {self.catalogue.rate_limits[kind].per_second:g}/s"
            )
        if fault is None:
            return Outcome(wait + seconds, ready, held=held)
        match fault.effect:
            case Effect.FAIL:
                return Outcome(wait + seconds, error=fault.error, held=held)
            case Effect.HANG:
                return Outcome(math.inf, hangs=True)
            case Effect.LATE:
                late = getattr(self.catalogue.timeouts, kind.value) + _LATE_SECONDS
                return Outcome(late, ready, stubborn=True)
            case Effect.UNREADY:
                return Outcome(wait + seconds, math.inf, never_ready=True, held=held)
            case Effect.SLOW:
                return Outcome(wait + fault.seconds, ready, held=held)
            case Effect.SMALLER:
                self._altered.add(machine.id)
                return Outcome(wait + seconds, ready, held=held, allocatable=dict(fault.allocatable))

    def host_up(self, machine_id: str, capacity_type: CapacityType, risk: float, now: float) -> None:
        """A host exists from now on: its fate is drawn."""
        incarnation = self._incarnations[machine_id] = self._incarnations.get(machine_id, 0) + 1
        dice = self._dice("fate", machine_id)
        luck = self.catalogue.misfortune
        at_risk = capacity_type == CapacityType.SPOT and luck.interruptions
        if not at_risk and not luck.losses_per_hour:
            return
        interrupted, lost, broken = dice.random(), dice.random(), dice.random() < luck.broken_share
        if at_risk:
            hourly = -math.log1p(-min(risk, NOTICED_RISK)) * luck.interruptions
            self._schedule(now + _time_to(interrupted, hourly), _Notice(machine_id, incarnation))
        if luck.losses_per_hour:
            self._schedule(
                now + _time_to(lost, luck.losses_per_hour),
                _Loss(machine_id, incarnation, "injected hardware fault", broken),
            )

    def host_down(self, machine_id: str) -> None:
        """The host was given back: nothing can happen to it any more."""
        self._incarnations[machine_id] = self._incarnations.get(machine_id, 0) + 1

    def next_due(self) -> float | None:
        """When something will happen by itself, or None."""
        return self._agenda[0][0] if self._agenda else None

    def due(self, machines: Mapping[str, MachineRecord], now: float) -> list[Event]:
        """What happened by itself up to now."""
        events: list[Event] = []
        while self._agenda and self._agenda[0][0] <= now:
            at, _, fate = heapq.heappop(self._agenda)
            events += self._befall(fate, machines, at)
        return events

    def execute(self, command: Command, machines: Mapping[str, MachineRecord], now: float) -> list[Event]:
        """Carry out one command; raises CatalogueError when it fits no machine, and then nothing has happened."""
        match command:
            case FaultNext():
                self.faults.next_time(command.fault, command.count)
            case SetFailureRate():
                self.faults.rates[command.transition] = command.rate
            case Hold():
                self.holding.add(command.transition)
            case Release():
                self.holding.discard(command.transition)
            case LoseHosts():
                return [self._lose(record.id, "injected host loss", now) for record in pick(command, machines)]
            case BreakMachines():
                return [MachineBroken(record.id, command.error) for record in pick(command, machines)]
            case RepairMachines():
                return [Repaired(record.id, record.host) for record in pick(command, machines)]
            case InterruptSpot():
                notices = [_Notice(r.id, self._incarnations.get(r.id, 0)) for r in pick(command, machines)]
                return [event for notice in notices for event in self._befall(notice, machines, now)]
            case ShrinkQuota():
                ids = tuple(record.id for record in pick(command, machines))
                self._withdrawn.update(ids)
                return [SlotsWithdrawn(ids)]
            case RestoreQuota():
                return self._restore_quota(command, now)
            case CloseZone():
                return self._close(command.zone, machines, now)
            case OpenZone():
                return self._open(command.zone, now)
        return []

    def _befall(self, fate: _Fate, machines: Mapping[str, MachineRecord], at: float) -> list[Event]:
        match fate:
            case _Notice(machine_id, incarnation):
                record = machines.get(machine_id)
                if record is None or record.host is None or self._incarnations.get(machine_id, 0) != incarnation:
                    return []
                leaves = at + self.catalogue.misfortune.notice_seconds
                self._schedule(leaves, _Loss(machine_id, incarnation, "spot interruption"))
                self._altered.add(machine_id)
                noticed = replace(_as_instance(record), interruption_probability=NOTICED_RISK)
                return [_described(noticed), InterruptionNoticed(machine_id, leaves)]
            case _Loss(machine_id, incarnation, reason, broken):
                if self._incarnations.get(machine_id, 0) != incarnation:
                    return []
                return [MachineBroken(machine_id, reason) if broken else self._lose(machine_id, reason, at)]
            case _Restore(machine_id) if self._zone(machine_id) in self._closed:
                self._withdrawn.add(machine_id)
                return [SlotsWithdrawn((machine_id,))]
            case _Restore(machine_id):
                slot = self.catalogue.instance(machine_id)
                return [_described(slot)] if slot is not None and machine_id in machines else []
            case _Mend(machine_id):
                record = machines.get(machine_id)
                if record is not None and record.state == MachineState.CREATING:  # it has not been told yet
                    self._schedule(at + _MEND_AGAIN_SECONDS, fate)
                bare = record is not None and record.state == MachineState.FAILED and record.host is None
                return [Repaired(machine_id, None)] if bare else []
            case command:
                try:
                    return self.execute(command, machines, at)
                except CatalogueError as error:
                    self.complaints.append(f"scheduled command had no effect: {error}")
                    return []

    def _lose(self, machine_id: str, reason: str, at: float) -> Event:
        self.host_down(machine_id)
        self._altered.discard(machine_id)
        # The slot comes back with what its last host published; the offering's own price and risk are put right then.
        self._schedule(at + self.catalogue.relist_seconds + 0.001, _Restore(machine_id))
        return HostLost(machine_id, reason)

    def _restore_quota(self, command: RestoreQuota, now: float) -> list[Event]:
        slots = [self.catalogue.instance(machine_id) for machine_id in sorted(self._withdrawn)]
        known = {slot.id: slot for slot in slots if slot is not None}
        chosen = command.choice.pick({slot.id: slot.zone for slot in known.values()})
        if not chosen:
            raise CatalogueError(f"no withdrawn slot fits {command.choice}; give slots that shrink-quota took away")
        self._withdrawn.difference_update(chosen)
        return [_described(*(known[machine_id] for machine_id in chosen))]

    def _close(self, zone: str, machines: Mapping[str, MachineRecord], now: float) -> list[Event]:
        here = sorted((record for record in machines.values() if record.shape.zone == zone), key=lambda each: each.id)
        if not here:
            raise CatalogueError(f"no machine is in zone {zone!r}; give a zone of the catalogue")
        self._closed.add(zone)
        slots = tuple(record.id for record in here if record.state == MachineState.SPECULATIVE)
        self._withdrawn.update(slots)
        # What is being created there gets no host either.
        there = [record for record in here if record.host is not None or record.state == MachineState.CREATING]
        lost = [self._lose(record.id, "its zone is gone", now) for record in there]
        return [*lost, SlotsWithdrawn(slots)]

    def _open(self, zone: str, now: float) -> list[Event]:
        if zone not in self._closed:
            raise CatalogueError(f"zone {zone!r} is not closed; give one that close-zone closed")
        self._closed.discard(zone)
        for machine_id in sorted(id for id in self._refused if self._zone(id) == zone):
            self._refused.discard(machine_id)
            self._schedule(now, _Mend(machine_id))
        back = [slot for id in sorted(self._withdrawn) if (slot := self.catalogue.instance(id)) and slot.zone == zone]
        self._withdrawn.difference_update(slot.id for slot in back)
        return [_described(*back)] if back else []

    def _zone(self, machine_id: str) -> str:
        slot = self.catalogue.instance(machine_id)
        return "" if slot is None else slot.zone

    def _dice(self, purpose: str, machine_id: str) -> random.Random:
        times = self._asked[purpose, machine_id] = self._asked.get((purpose, machine_id), 0) + 1
        return cast(random.Random, _Dice(f"{self.catalogue.seed}/{purpose}/{machine_id}/{times}"))

    def _schedule(self, due: float, fate: _Fate) -> None:
        if math.isfinite(due):
            self._entries += 1
            heapq.heappush(self._agenda, (due, self._entries, fate))


class _Dice:
    """A generator that is seeded when it is first thrown: seeding is dear and most work needs no luck."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, draw: str) -> Any:
        made = random.Random(self._name)
        for each in ("random", "gauss", "randint", "expovariate"):
            setattr(self, each, getattr(made, each))
        return getattr(made, draw)


def _described(*instances: Instance) -> Described:
    return Described(instances, as_of=0, complete=False)


def _as_instance(record: MachineRecord) -> Instance:
    shape = record.shape
    return Instance(
        record.id,
        shape.instance_type,
        zone=shape.zone,
        capacity_type=shape.capacity_type,
        price_per_hour=shape.price_per_hour,
        interruption_probability=shape.interruption_probability,
        resources=dict(shape.resources),
        allocatable=dict(shape.allocatable),
        labels=dict(shape.labels),
        taints=shape.taints,
        host=record.host,
    )


def _time_to(draw: float, hourly: float) -> float:
    """Seconds until an event of this hourly rate, for a uniform draw."""
    return -math.log1p(-draw) / hourly * _HOUR if hourly > 0 else math.inf
