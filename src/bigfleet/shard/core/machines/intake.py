"""Whether a provider's record can be believed at all: the invariants of the model and the engine's limits.

Judges single records, cheaply, because half a million of them may arrive at once. Reasons are metric labels.
"""

from __future__ import annotations

from bigfleet.engine.batches import Shape
from bigfleet.model.machine import INTERRUPTION_PROBABILITY, PRICE, SHAPES, STRUCTURAL, MachineState, Violation
from bigfleet.shard.contract.events import ListedMachine
from bigfleet.shard.core.state.enum_aliases import FAILED

MAX_LABELS = 256
MAX_UNITS = 2**40
_INFINITY = float("inf")


def flaw_of(listed: ListedMachine, known: Shape | None = None) -> Violation | None:
    """The first reason to refuse the record; None for a good one. A shape that is the `known` one was judged before."""
    if listed.shape is known:
        return _structure_flaw(listed)
    return _shape_flaw(listed.shape) or _structure_flaw(listed)


def _shape_flaw(shape: Shape) -> Violation | None:
    if not 0 <= shape.price < _INFINITY:
        return Violation(PRICE, f"price_per_hour is {shape.price}; a finite number of at least 0 is accepted")
    if not 0 <= shape.probability <= 1:
        detail = f"interruption_probability is {shape.probability}; 0 to 1 is accepted"
        return Violation(INTERRUPTION_PROBABILITY, detail)
    if len(shape.labels) > MAX_LABELS:
        return Violation(STRUCTURAL, f"labels are {len(shape.labels)}; at most {MAX_LABELS} are accepted")
    for name, amount in shape.allocatable.items():
        if not 0 <= amount <= MAX_UNITS:
            return Violation(STRUCTURAL, f"resource {name} is {amount} units; 0 to {MAX_UNITS} are accepted")
    return None


def _structure_flaw(listed: ListedMachine) -> Violation | None:
    if not listed.id:
        return Violation(STRUCTURAL, "id is empty; every machine needs one")
    rules = SHAPES.get(listed.state)
    if rules is None:
        return Violation(STRUCTURAL, f"state is {int(listed.state)}; 1 to 8 are accepted")
    host, cluster = rules
    if host is not None and bool(listed.host) != host:
        return Violation(STRUCTURAL, f"host is {listed.host!r} in state {_label(listed)}; it must be {_wanted(host)}")
    if cluster is not None and bool(listed.cluster) != cluster:
        detail = f"cluster is {listed.cluster!r} in state {_label(listed)}; it must be {_wanted(cluster)}"
        return Violation(STRUCTURAL, detail)
    if listed.state == FAILED and not listed.last_error:
        return Violation(STRUCTURAL, "last_error is empty in state Failed; it must say what failed")
    return None


def _label(listed: ListedMachine) -> str:
    return MachineState(listed.state).label


def _wanted(present: bool) -> str:
    return "set" if present else "empty"
