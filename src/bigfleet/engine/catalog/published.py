"""What a class publishes beside amounts of the resources anybody asked for: devices, `pods`, who owns it, how large it
is, what it counts for and how long it takes to boot (`docs/engine.md` P8, P9, P19, P22). All resources count, also
those no row and no report ever named.
"""

from __future__ import annotations

import math

from bigfleet.engine.batches import Shape
from bigfleet.engine.catalog.catalog import Catalog
from bigfleet.engine.kernels.columns import grown, made, room
from bigfleet.engine.kernels.jit import I4, I8, U1
from bigfleet.engine.kernels.view import View, view
from bigfleet.engine.policy import Placement
from bigfleet.model.resources import Resources, is_device

_BOUGHT = (3, 4)
# In millionths of a dollar: what a machine without a price counts for per thousandth of a core, and without cores.
_A_MILLICORE = 50
_A_DOLLAR = 1_000_000


@view
class Published(View):
    """By class; `size` is its place in the order of allocatables, smaller ones first, equal for equal ones;
    `counts_for` what a machine counts for when a cluster is doubted (P19), in millionths of a dollar."""

    device: U1
    pods: U1
    owned: U1
    size: I4
    boot: I8
    counts_for: I8


class PublishedStore:
    """Derived from the catalog when classes appear or the policy's boot times change."""

    def __init__(self) -> None:
        self.v = made(Published, 16)
        self._of: tuple[object, int, Placement | None] = (None, 0, None)

    def fit(self, catalog: Catalog, placement: Placement) -> Published:
        """Brings it up to date; call when classes are complete."""
        # Classes derived anew begin another table, so its identity tells.
        table, done, known = self._of
        count = catalog.class_count
        if table is not catalog.class_shapes or (known is not placement and known != placement):
            done = 0
        if done == count and known is not None:
            return self.v
        size = room(len(self.v.size), count)
        self.v = Published(*(grown(column, size) for column in self.v))
        for number in range(done, count):
            shape = catalog.class_shape(number)
            names = shape.allocatable.names()
            self.v.device[number] = any(map(is_device, names))
            self.v.pods[number] = "pods" in names
            self.v.owned[number] = shape.capacity_type not in _BOUGHT
            self.v.boot[number] = placement.boot_by_provider.get(shape.provider, placement.boot_ns)
            self.v.counts_for[number] = _counts_for(shape)
        if count:
            self.v.size[:count] = _sizes([catalog.class_shape(number).allocatable for number in range(count)])
        self._of = (catalog.class_shapes, count, placement)
        return self.v


def _sizes(allocatables: list[Resources]) -> list[int]:
    """Places of vectors compared by amounts in descending text order of resource names."""
    distinct = set(allocatables)
    names = sorted({name for each in distinct for name in each.names()}, key=str.encode, reverse=True)
    keys = {each: tuple(each.get(name) for name in names) for each in distinct}
    place = {key: at for at, key in enumerate(sorted(set(keys.values())))}
    return [place[keys[each]] for each in allocatables]


def _counts_for(shape: Shape) -> int:
    """Its price. What costs nothing is not to be had without end either: it counts as its cores would cost."""
    if shape.price > 0.0:
        return math.floor(shape.price * 1_000_000 + 0.5)
    return shape.allocatable.get("cpu") * _A_MILLICORE or _A_DOLLAR
