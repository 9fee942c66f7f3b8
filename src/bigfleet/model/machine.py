"""Machines: their life cycle as tables, and the invariants every record of one must keep.

DRIVEN_EDGES is what we may do to a machine; OBSERVED_EDGES is what a provider may show us between two looks, where
states can be skipped and a host can vanish from under us. docs/machine-states.md is generated from both.
Owns no clock and no inventory: whoever keeps machines decides what to do about an edge or a violation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from bigfleet.model.names import CAPACITY_TYPE_LABEL, HOSTNAME_LABEL


class MachineState(IntEnum):
    """Numbers are those of the wire; its 0, unspecified, is no state a machine can be in."""

    SPECULATIVE = 1
    CREATING = 2
    IDLE = 3
    CONFIGURING = 4
    CONFIGURED = 5
    DRAINING = 6
    DELETING = 7
    FAILED = 8

    label: str
    """Its name in metrics, logs and documents: `Speculative`, …"""

    def __init__(self, number: int) -> None:
        self.label = self._name_.capitalize()


class CapacityType(IntEnum):
    """Numbers are those of the wire."""

    UNSPECIFIED = 0
    BARE_METAL = 1
    RESERVED = 2
    ON_DEMAND = 3
    SPOT = 4

    @property
    def label(self) -> str:
        """As nodes carry it: `bare-metal`, `reserved`, `on-demand`, `spot`."""
        return self.name.lower().replace("_", "-")


def node_labels(labels: Mapping[str, str], capacity_type: int) -> tuple[tuple[str, str], ...]:
    """A machine's labels as its node will carry them: demand may ask for or refuse a capacity type by label."""
    # The host name is the machine itself: kept here it would make every machine a shape of its own.
    kept = {key: value for key, value in labels.items() if key != HOSTNAME_LABEL}
    if capacity_type:
        kept[CAPACITY_TYPE_LABEL] = CapacityType(capacity_type).label
    return tuple(sorted(kept.items()))


_S = MachineState
STABLE: Final = frozenset({_S.SPECULATIVE, _S.IDLE, _S.CONFIGURED})
# States in which a machine belongs to a cluster.
BOUND: Final = frozenset({_S.CONFIGURING, _S.CONFIGURED, _S.DRAINING})


class CallKind(StrEnum):
    """The four calls that change a machine."""

    CREATE = "create"
    CONFIGURE = "configure"
    DRAIN = "drain"
    DELETE = "delete"


class Passage(NamedTuple):
    """What a call does to a machine: the state before it, while the provider is at work, and after it."""

    before: MachineState
    during: MachineState
    after: MachineState


PASSAGES: Final[Mapping[CallKind, Passage]] = MappingProxyType(
    {
        CallKind.CREATE: Passage(_S.SPECULATIVE, _S.CREATING, _S.IDLE),
        CallKind.CONFIGURE: Passage(_S.IDLE, _S.CONFIGURING, _S.CONFIGURED),
        CallKind.DRAIN: Passage(_S.CONFIGURED, _S.DRAINING, _S.IDLE),
        CallKind.DELETE: Passage(_S.IDLE, _S.DELETING, _S.SPECULATIVE),
    }
)
# Which call a machine in a passing state is in the middle of.
CALL_DURING: Final[Mapping[MachineState, CallKind]] = MappingProxyType(
    {passage.during: call for call, passage in PASSAGES.items()}
)

Edge = tuple[MachineState, MachineState]
# None is the provider not listing the machine at all.
Sighting = tuple[MachineState | None, MachineState | None]

DRIVEN_EDGES: Final[Mapping[Edge, str]] = MappingProxyType(
    {
        (_S.SPECULATIVE, _S.CREATING): "Create",
        (_S.CREATING, _S.IDLE): "host attached",
        (_S.CREATING, _S.FAILED): "Create failed",
        (_S.IDLE, _S.CONFIGURING): "Configure",
        (_S.IDLE, _S.DELETING): "Delete",
        (_S.CONFIGURING, _S.CONFIGURED): "node ready",
        (_S.CONFIGURING, _S.FAILED): "Configure failed",
        (_S.CONFIGURING, _S.IDLE): "given up before the provider was asked",
        (_S.CONFIGURED, _S.DRAINING): "Drain",
        (_S.DRAINING, _S.IDLE): "drained",
        (_S.DRAINING, _S.FAILED): "Drain failed",
        (_S.DELETING, _S.SPECULATIVE): "host released",
        (_S.DELETING, _S.FAILED): "Delete failed",
    }
)

# Sightings no action of ours explains. An entry per pair, because each has its own reason to be believed.
UNPROMPTED_EDGES: Final[dict[Sighting, str]] = {
    (_S.SPECULATIVE, _S.IDLE): "created between two looks",
    (_S.SPECULATIVE, _S.FAILED): "Create failed between two looks",
    (_S.CREATING, _S.SPECULATIVE): "Create undone by the provider",
    (_S.IDLE, _S.CONFIGURED): "configured between two looks",
    (_S.IDLE, _S.SPECULATIVE): "host lost or deleted between two looks",
    (_S.IDLE, _S.FAILED): "host broke",
    (_S.CONFIGURING, _S.SPECULATIVE): "host lost",
    (_S.CONFIGURED, _S.IDLE): "binding lost or drained between two looks",
    (_S.CONFIGURED, _S.SPECULATIVE): "host lost",
    (_S.CONFIGURED, _S.FAILED): "host broke",
    (_S.DRAINING, _S.CONFIGURED): "drain not begun or undone by the provider",
    (_S.DRAINING, _S.SPECULATIVE): "host lost",
    (_S.DELETING, _S.IDLE): "Delete undone by the provider",
    # Failed may be our own verdict, a timeout for example: the provider knows better what became of the machine.
    **{(_S.FAILED, state): "recovered at the provider" for state in MachineState if state is not _S.FAILED},
    **{(state, None): "machine vanished" for state in MachineState},
    **{(None, state): "machine appeared" for state in MachineState},
}
OBSERVED_EDGES: Final[Mapping[Sighting, str]] = MappingProxyType(
    {**dict[Sighting, str](DRIVEN_EDGES.items()), **UNPROMPTED_EDGES}
)


# (host set, cluster set) per state; None where both are accepted.
SHAPES: Final[Mapping[int, tuple[bool | None, bool | None]]] = {
    _S.SPECULATIVE: (False, False),
    _S.CREATING: (False, False),
    _S.IDLE: (True, False),
    _S.CONFIGURING: (True, None),
    _S.CONFIGURED: (True, True),
    _S.DRAINING: (True, True),
    _S.DELETING: (True, False),
    _S.FAILED: (None, None),
}


MAX_LABELS: Final = 256
"""More labels than this on a machine are a mistake."""

PRICE: Final = "price"
INTERRUPTION_PROBABILITY: Final = "interruption_probability"
STRUCTURAL: Final = "structural"


class Violation(NamedTuple):
    """A broken invariant: the label it is counted under and a sentence for the log."""

    reason: str
    detail: str


def price_flaw(price: float, probability: float) -> Violation | None:
    """What is wrong with what a machine costs and risks; None for good figures."""
    # `not in-range` written this way round refuses NaN as well.
    if not 0 <= price < math.inf:
        return Violation(PRICE, f"price_per_hour is {price}; a finite number of at least 0 is accepted")
    if not 0 <= probability <= 1:
        return Violation(INTERRUPTION_PROBABILITY, f"interruption_probability is {probability}; 0 to 1 is accepted")
    return None


def structure_flaw(id: str, state: int, host: str, cluster: str, last_error: str) -> Violation | None:
    """The first way in which a record breaks the grid of SHAPES; None for a good one."""
    if not id:
        return Violation(STRUCTURAL, "id is empty; every machine needs one")
    rules = SHAPES.get(state)
    if rules is None:
        return Violation(STRUCTURAL, f"state is {int(state)}; 1 to 8 are accepted")
    wants_host, wants_cluster = rules
    if wants_host is not None and bool(host) != wants_host:
        return _unlike(state, "host", host, wants_host)
    if wants_cluster is not None and bool(cluster) != wants_cluster:
        return _unlike(state, "cluster", cluster, wants_cluster)
    if state == _S.FAILED and not last_error:
        return Violation(STRUCTURAL, "last_error is empty in state Failed; it must say what failed")
    return None


def _unlike(state: int, field: str, value: str, wanted: bool) -> Violation:
    must = "set" if wanted else "empty"
    return Violation(STRUCTURAL, f"{field} is {value!r} in state {MachineState(state).label}; it must be {must}")
