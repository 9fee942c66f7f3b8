"""What can be bought: every instance type of the shipped table in one or two markets, as columns.

Owns capacity, price and interruption probability per *kind* (type and market). Must never know who buys or why; nothing
here comes from the engine. A spot hour costs 0.3 of the listed price and is interrupted with a probability of 0.05.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigfleet.provider.fake.instance_types import InstanceType, known_instance_types

CPU, MEMORY, GPU = range(3)
RESOURCES = 3
ON_DEMAND, SPOT, RESERVED = "on-demand", "spot", "reserved"
SPOT_PRICE, SPOT_PROBABILITY, RESERVED_PRICE = 0.3, 0.05, 0.6

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Kinds:
    """Rows are kinds; capacity in milli cores, MiB and GPUs after what every node loses to its DaemonSets."""

    names: tuple[str, ...]
    capacity: Ints
    price: Floats
    probability: Floats
    limit: Ints
    overhead: tuple[int, int, int] = (0, 0, 0)

    @property
    def gpu(self) -> Flags:
        return self.capacity[:, GPU] > 0

    @property
    def spot(self) -> Flags:
        return self.probability > 0

    def __len__(self) -> int:
        return len(self.names)

    def only(self, rows: Ints) -> Kinds:
        return Kinds(
            tuple(self.names[row] for row in rows),
            self.capacity[rows],
            self.price[rows],
            self.probability[rows],
            self.limit[rows],
        )


UNLIMITED = 1 << 30


def kinds(
    spot: bool = False,
    overhead: tuple[int, int, int] = (0, 0, 0),
    reserved: dict[str, int] | None = None,
    accept: Callable[[InstanceType], bool] = lambda _type: True,
) -> Kinds:
    """The table as kinds: on demand, on spot too if asked, and so many reserved of some types."""
    rows: list[tuple[str, list[int], float, float, int]] = []
    for type_ in known_instance_types().values():
        if not accept(type_):
            continue
        room = [type_.vcpu * 1000, type_.memory_gib * 1024, type_.gpus]
        left = [max(0, have - lost) for have, lost in zip(room, overhead, strict=True)]
        price = type_.on_demand_usd_per_hour
        rows.append((f"{type_.name}/{ON_DEMAND}", left, price, 0.0, UNLIMITED))
        if spot:
            rows.append((f"{type_.name}/{SPOT}", left, price * SPOT_PRICE, SPOT_PROBABILITY, UNLIMITED))
        if reserved and type_.name in reserved:
            rows.append((f"{type_.name}/{RESERVED}", left, price * RESERVED_PRICE, 0.0, reserved[type_.name]))
    names, capacity, prices, probabilities, limits = zip(*rows, strict=True)
    return Kinds(
        tuple(names),
        np.array(capacity, np.int64),
        np.array(prices, np.float64),
        np.array(probabilities, np.float64),
        np.array(limits, np.int64),
        overhead,
    )


def undominated(all_kinds: Kinds) -> Ints:
    """Kinds no other kind replaces: at least as large, at most as dear, at most as risky, and not limited."""
    kept = []
    for one in range(len(all_kinds)):
        better = (
            (all_kinds.capacity >= all_kinds.capacity[one]).all(1)
            & (all_kinds.price <= all_kinds.price[one])
            & (all_kinds.probability <= all_kinds.probability[one])
            & (all_kinds.limit >= UNLIMITED)
        )
        same = (
            (all_kinds.capacity == all_kinds.capacity[one]).all(1)
            & (all_kinds.price == all_kinds.price[one])
            & (all_kinds.probability == all_kinds.probability[one])
        )
        # Of equals the first stays.
        better &= ~same | (np.arange(len(all_kinds)) < one)
        better[one] = False
        if not better.any() or all_kinds.limit[one] < UNLIMITED:
            kept.append(one)
    return np.array(kept, np.int64)
