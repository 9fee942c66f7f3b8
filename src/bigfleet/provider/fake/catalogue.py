"""The fake's catalogue: offerings, how long transitions take, and how the pretend backend misbehaves.

Read once from YAML into one typed value. Durations of the default catalogue are short, so that a conformance run takes
seconds; `realistic` durations are those of a cloud, for the simulator and for demonstrations in real time.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Final

import yaml

from bigfleet.provider.fake.commands import Command, read_command
from bigfleet.provider.fake.faults import REFERENCE_FAULTS, TRANSITIONS, Fault, read_fault
from bigfleet.provider.fake.fields import CatalogueError, Fields
from bigfleet.provider.fake.offerings import Offering, read_offering
from bigfleet.provider.kit.core.core import Timeouts
from bigfleet.provider.kit.core.records import Instance, Kind
from bigfleet.virtual.kernel import MILLISECOND, MINUTE, SECOND, Duration
from bigfleet.yaml_text import read_yaml


@dataclass(frozen=True, slots=True)
class Latencies:
    """How long each transition takes; `ready` is the time from a successful Configure to a Ready node."""

    create: Duration
    configure: Duration
    ready: Duration
    drain: Duration
    delete: Duration

    def of(self, kind: Kind) -> Duration:
        found: Duration = getattr(self, kind.value)
        return found


REFERENCE_TIMEOUT: Final = 2.0
_CREATE_FAULT_SLOTS: Final = 8
_ZERO: Final = Duration.fixed(0)
LATENCIES: Final = {
    "instant": Latencies(_ZERO, _ZERO, _ZERO, _ZERO, _ZERO),
    "quick": Latencies(
        create=Duration.lognormal(60 * MILLISECOND, 250 * MILLISECOND),
        configure=Duration.lognormal(40 * MILLISECOND, 150 * MILLISECOND),
        ready=Duration.lognormal(20 * MILLISECOND, 80 * MILLISECOND),
        drain=Duration.lognormal(40 * MILLISECOND, 150 * MILLISECOND),
        delete=Duration.lognormal(30 * MILLISECOND, 100 * MILLISECOND),
    ),
    "realistic": Latencies(
        create=Duration.lognormal(45 * SECOND, 110 * SECOND),
        configure=Duration.lognormal(25 * SECOND, 70 * SECOND),
        ready=Duration.lognormal(12 * SECOND, 40 * SECOND),
        drain=Duration.lognormal(40 * SECOND, 4 * MINUTE),
        delete=Duration.lognormal(20 * SECOND, 60 * SECOND),
    ),
}


@dataclass(frozen=True, slots=True)
class RateLimit:
    """How many calls of one kind the backend takes per second; above that they wait, or fail."""

    per_second: float
    burst: int
    fail: bool = False


@dataclass(frozen=True, slots=True)
class Misfortune:
    """What happens to hosts by themselves. `interruptions` multiplies the declared spot risk; 0 turns it off."""

    interruptions: float = 0.0
    notice_seconds: float = 120.0
    losses_per_hour: float = 0.0
    broken_share: float = 0.0


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A command that runs by itself after a while."""

    at_seconds: float
    command: Command


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Everything the fake is."""

    provider: str
    offerings: tuple[Offering, ...]
    seed: int = 1
    latencies: Latencies = LATENCIES["quick"]
    timeouts: Timeouts = field(default_factory=Timeouts)
    relist_seconds: float = 60.0
    can_delete: bool = True
    faults: tuple[Fault, ...] = ()
    failure_rates: dict[Kind, float] = field(default_factory=dict)
    rate_limits: dict[Kind, RateLimit] = field(default_factory=dict)
    misfortune: Misfortune = Misfortune()
    schedule: tuple[Scheduled, ...] = ()

    @property
    def size(self) -> int:
        return sum(offering.count for offering in self.offerings)

    @property
    def slots(self) -> int:
        return sum(offering.count - offering.hosts for offering in self.offerings)

    def instance(self, machine_id: str) -> Instance | None:
        """The slot or host with this id as the offering describes it."""
        number = machine_id.rpartition("-")[2]
        for offering in self.offerings:
            if number.isdecimal() and int(number) < offering.count and offering.machine_id(int(number)) == machine_id:
                return offering.instance(self.provider, int(number))
        return None

    def with_slots(self, slots: int) -> Catalogue:
        """The same mix with exactly `slots` slots to buy; hosts that exist from the start stay as they are."""
        if slots < 1:
            raise CatalogueError(f"the number of slots is {slots}; give 1 or more")
        total, given, upto = self.slots, 0, 0
        if total == 0:
            raise CatalogueError("the catalogue has no slots to buy, so their number cannot be changed")
        scaled = []
        for offering in self.offerings:
            # Cumulative rounding: the shares add up exactly, and the mix is kept for any number.
            upto += offering.count - offering.hosts
            share = slots * upto // total - given
            given += share
            if share + offering.hosts:
                scaled.append(replace(offering, count=share + offering.hosts))
        return replace(self, offerings=tuple(scaled))


def load_catalogue(path: Path) -> Catalogue:
    """The catalogue in a YAML file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CatalogueError(f"catalogue {path} cannot be read: {error.strerror}") from error
    return parse_catalogue(text, str(path))


@functools.cache
def builtin_catalogue() -> Catalogue:
    """The catalogue used without a file: on-prem, reserved, on-demand and spot in several zones and racks."""
    text = resources.files(__package__).joinpath("builtin_catalogue.yaml").read_text(encoding="utf-8")
    return parse_catalogue(text, "built-in catalogue")


def parse_catalogue(text: str, where: str) -> Catalogue:
    """A catalogue from YAML text; `where` names it in complaints."""
    try:
        document = read_yaml(text)
    except yaml.YAMLError as error:
        raise CatalogueError(f"{where} is not YAML: {' '.join(str(error).split())}") from error
    fields = Fields(where, document)
    latencies = fields.choice("durations", LATENCIES, "quick")
    catalogue = Catalogue(
        provider=fields.text("provider", "fake", pattern=r"\S+", accepted="a name without spaces"),
        offerings=fields.items("offerings", read_offering),
        seed=fields.whole("seed", 1, high=2**63 - 1),
        latencies=_read_latencies(fields.section("latencies"), latencies),
        timeouts=_read_timeouts(fields.section("timeouts")),
        relist_seconds=fields.seconds("relist_after", 60.0),
        can_delete=fields.flag("can_delete", True),
        faults=fields.items("faults", _read_whole_fault),
        failure_rates=_read_rates(fields.section("failure_rates")),
        rate_limits=_read_limits(fields.section("rate_limits")),
        misfortune=_read_misfortune(fields.section("misfortune")),
        schedule=fields.items("schedule", _read_scheduled),
    )
    fields.done()
    _check_offerings(fields, catalogue.offerings)
    return catalogue


def with_reference_faults(catalogue: Catalogue) -> Catalogue:
    """The catalogue with the selectors of the conformance suite's fault lane, its failing slots and short timeouts."""
    first = next(offering for offering in catalogue.offerings if offering.count > offering.hosts)
    label = {**first.labels, "conformance.fault/create": "error"}
    failing: Offering = replace(first, name="faultcreate", count=_CREATE_FAULT_SLOTS, hosts=0, labels=label)
    every = REFERENCE_TIMEOUT
    return replace(
        catalogue,
        offerings=(*catalogue.offerings, failing),
        faults=(*REFERENCE_FAULTS, *catalogue.faults),
        timeouts=Timeouts(every, every, every, every),
    )


def _check_offerings(fields: Fields, offerings: tuple[Offering, ...]) -> None:
    if not offerings:
        raise CatalogueError(f"{fields.where}.offerings is empty; give at least one offering")
    names = [offering.name for offering in offerings]
    for name in names:
        if names.count(name) > 1:
            raise CatalogueError(f"{fields.where}.offerings names {name!r} twice; machine ids are made of these names")


def _read_latencies(fields: Fields, default: Latencies) -> Latencies:
    found = Latencies(
        create=fields.duration("create", default.create),
        configure=fields.duration("configure", default.configure),
        ready=fields.duration("ready", default.ready),
        drain=fields.duration("drain", default.drain),
        delete=fields.duration("delete", default.delete),
    )
    fields.done()
    return found


def _read_timeouts(fields: Fields) -> Timeouts:
    default = Timeouts()
    found = Timeouts(
        create=fields.seconds("create", default.create),
        configure=fields.seconds("configure", default.configure),
        drain=fields.seconds("drain", default.drain),
        delete=fields.seconds("delete", default.delete),
    )
    fields.done()
    return found


def _read_rates(fields: Fields) -> dict[Kind, float]:
    rates = {kind: fields.number(name, 0.0, high=1.0) for name, kind in TRANSITIONS.items()}
    fields.done()
    return {kind: rate for kind, rate in rates.items() if rate}


def _read_limits(fields: Fields) -> dict[Kind, RateLimit]:
    limits: dict[Kind, RateLimit] = {}
    for name, kind in TRANSITIONS.items():
        if name in fields:
            inner = fields.section(name)
            per_second = inner.number("per_second", low=0.001)
            burst = inner.whole("burst", max(1, int(per_second)), low=1)
            limits[kind] = RateLimit(per_second, burst, inner.choice("excess", {"wait": False, "fail": True}, "wait"))
            inner.done()
        else:
            fields.section(name)
    fields.done()
    return limits


def _read_misfortune(fields: Fields) -> Misfortune:
    found = Misfortune(
        interruptions=fields.number("interruptions", 0.0, high=1e6),
        notice_seconds=fields.seconds("notice", 120.0),
        losses_per_hour=fields.number("losses_per_hour", 0.0, high=3600.0),
        broken_share=fields.number("broken_share", 0.0, high=1.0),
    )
    fields.done()
    return found


def _read_whole_fault(fields: Fields) -> Fault:
    fault = read_fault(fields)
    fields.done()
    return fault


def _read_scheduled(fields: Fields) -> Scheduled:
    return Scheduled(fields.seconds("at"), read_command(fields))
