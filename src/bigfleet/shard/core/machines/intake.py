"""Whether a provider's record can be believed at all: the invariants of the model and the engine's limits.

Judges single records, cheaply, because half a million of them may arrive at once. Reasons are metric labels.
"""

from __future__ import annotations

from bigfleet.engine.batches import Shape
from bigfleet.model.machine import MAX_LABELS, STRUCTURAL, Violation, price_flaw, structure_flaw
from bigfleet.model.resources import MAX_MACHINE_UNITS
from bigfleet.shard.contract.events import ListedMachine


def flaw_of(listed: ListedMachine, known: Shape | None = None) -> Violation | None:
    """The first reason to refuse the record; None for a good one. A shape that is the `known` one was judged before."""
    shape = listed.shape
    flaw = None if shape is known else price_flaw(shape.price, shape.probability) or _limit_flaw(shape)
    return flaw or structure_flaw(listed.id, listed.state, listed.host, listed.cluster, listed.last_error)


def _limit_flaw(shape: Shape) -> Violation | None:
    if len(shape.labels) > MAX_LABELS:
        return Violation(STRUCTURAL, f"labels are {len(shape.labels)}; at most {MAX_LABELS} are accepted")
    for name, amount in shape.allocatable.items():
        if not 0 <= amount <= MAX_MACHINE_UNITS:
            return Violation(STRUCTURAL, f"resource {name} is {amount} units; 0 to {MAX_MACHINE_UNITS} are accepted")
    return None
