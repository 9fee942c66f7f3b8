"""The catalogue of behaviours: ids, titles, explanations, profiles and what each one needs to run.

Ids are append-only and never reused; a behaviour binds to its id by decorator, one family per file under `behaviours`.
The docstring of the function is the explanation users read in `bigfleet-conformance explain`.
"""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bigfleet.provider.conformance.states import State

if TYPE_CHECKING:
    from bigfleet.provider.conformance.trial import Trial

Body = Callable[["Trial"], Awaitable[None]]

PROFILES: dict[str, str] = {
    "core": "every provider",
    "cloud": "implements Delete",
    "spot": "offers SPOT machines",
    "bare-metal": "Delete is UNIMPLEMENTED",
    "fault": "failures end in FAILED with a diagnosis",
    "durable": "survives kill and restart",
    "scale": "large inventory and soak",
}

_BEHAVIOUR_ID = re.compile(r"^B[1-9][0-9]{2,3}$")
_WORD = re.compile(r"[A-Z]{2,}s?(?![a-z])|[A-Z][a-z0-9]*")


class Capability(enum.Enum):
    """What a behaviour presumes about the provider; Delete and revisions are probed, the others are lanes."""

    NONE = "none"
    DELETE = "delete"
    SINCE_REVISION = "since-revision"
    FAULT = "fault"
    DURABLE = "durable"
    SCALE = "scale"


class Lane(enum.Enum):
    """Where a behaviour runs; the value is the phase number of the report."""

    BASELINE = 1
    SUITE = 2
    FAULT = 3
    DURABLE = 4
    SCALE = 5

    @property
    def phase(self) -> int:
        return {Lane.BASELINE: 2, Lane.SUITE: 2, Lane.FAULT: 4, Lane.DURABLE: 4, Lane.SCALE: 5}[self]


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One rule of the contract with the code that checks it."""

    id: str
    name: str
    area: str
    profiles: tuple[str, ...]
    lane: Lane
    capability: Capability
    explanation: str
    body: Body
    slots: tuple[int, int]
    start: State
    exclusive: bool

    @property
    def title(self) -> str:
        words = _WORD.findall(self.name)
        return " ".join(w if i == 0 or (w[:2].isupper() and len(w) > 1) else w.lower() for i, w in enumerate(words))

    @property
    def black_box(self) -> bool:
        return self.lane in (Lane.BASELINE, Lane.SUITE, Lane.SCALE)

    @property
    def is_baseline(self) -> bool:
        return self.lane is Lane.BASELINE


class Family:
    """One area of the catalogue; its `behaviour` decorator registers a check under an id."""

    def __init__(self, area: str, lane: Lane = Lane.SUITE, profiles: Iterable[str] = ("core",)) -> None:
        self.area = area
        self.lane = lane
        self.profiles = tuple(profiles)
        self.behaviours: list[Behaviour] = []

    def behaviour(
        self,
        id: str,
        name: str,
        *,
        slots: int | tuple[int, int] = 1,
        start: State = State.SPECULATIVE,
        capability: Capability | None = None,
        profiles: Iterable[str] | None = None,
        lane: Lane | None = None,
        exclusive: bool = False,
    ) -> Callable[[Body], Body]:
        """Bind the decorated check to `id`.

        `slots` is how many machines to lease (or a minimum and a wish), `start` the state to lease them in.
        An exclusive behaviour runs while nothing else mutates the fleet: quiet deltas can be judged no other way.
        """

        def bind(body: Body) -> Body:
            home = lane or self.lane
            minimum, wanted = (slots, slots) if isinstance(slots, int) else slots
            self.behaviours.append(
                Behaviour(
                    id=id,
                    name=name,
                    area=self.area,
                    profiles=tuple(profiles) if profiles is not None else self.profiles,
                    lane=home,
                    capability=capability or _LANE_CAPABILITY.get(home, Capability.NONE),
                    explanation=inspect.getdoc(body) or "",
                    body=body,
                    slots=(minimum, wanted),
                    start=start,
                    exclusive=exclusive,
                )
            )
            return body

        return bind


_LANE_CAPABILITY = {Lane.FAULT: Capability.FAULT, Lane.DURABLE: Capability.DURABLE, Lane.SCALE: Capability.SCALE}


def catalogue() -> tuple[Behaviour, ...]:
    """Every registered behaviour, baseline first, then by number."""
    from bigfleet.provider.conformance.behaviours import FAMILIES

    everything = [behaviour for family in FAMILIES for behaviour in family.behaviours]
    return tuple(sorted(everything, key=lambda b: (not b.is_baseline, 0 if b.is_baseline else int(b.id[1:]))))


def find(wanted: str) -> Behaviour | None:
    """The behaviour with this id or baseline name, ignoring case and the reference's test prefix."""
    key = wanted.removeprefix("TestConformance_").lower()
    for behaviour in catalogue():
        if key in (behaviour.id.lower(), behaviour.name.lower()):
            return behaviour
    return None


def catalogue_faults(behaviours: Iterable[Behaviour]) -> list[str]:
    """Why this set of behaviours is not a sound catalogue; empty when it is."""
    faults: list[str] = []
    seen: set[str] = set()
    for b in behaviours:
        if b.id in seen:
            faults.append(f"{b.id} is registered twice")
        seen.add(b.id)
        if not b.is_baseline and not _BEHAVIOUR_ID.match(b.id):
            faults.append(f"id {b.id!r} is not of the form B101")
        if not b.profiles:
            faults.append(f"{b.id} names no profile")
        faults += [f"{b.id} names the unknown profile {p!r}" for p in b.profiles if p not in PROFILES]
        if len(b.explanation) < 40:
            faults.append(f"{b.id} has no explanation")
        expected = _LANE_CAPABILITY.get(b.lane)
        if b.capability in _LANE_CAPABILITY.values() and b.capability is not expected:
            faults.append(f"{b.id} needs {b.capability.value} but runs in lane {b.lane.name}")
        if b.slots[0] > b.slots[1]:
            faults.append(f"{b.id} wants fewer machines than its minimum")
    return faults
