"""A running step: what it was given, the world it decides in, and what its stages found so far.

Made after Apply and dropped at the end. Stages read all of it; each changes only what its head names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.batches import Conditions
from bigfleet.engine.counted.step import CountedStep
from bigfleet.engine.decide.workbench import Workbench
from bigfleet.engine.decide.world import Rules, World
from bigfleet.engine.giving_back.giving import GivingBack
from bigfleet.engine.policy import Policy
from bigfleet.engine.stages.applying import Applied
from bigfleet.engine.stages.stores import Stores


class Pending(NamedTuple):
    """Entries the shard-wide pass served, in order, and the places in it of those that stayed short."""

    order: NDArray[np.int32]
    short: NDArray[np.int32]


_NOTHING = Pending(np.zeros(0, np.int32), np.zeros(0, np.int32))


@dataclass(eq=False, slots=True)
class Running:
    stores: Stores
    bench: Workbench
    giving: GivingBack
    policy: Policy
    conditions: Conditions
    applied: Applied
    rules: Rules
    # Another one whenever a kernel needed more room.
    w: World
    pending: Pending = _NOTHING
    # What counted entries look at; None where none lacks room.
    counted: CountedStep | None = None
    # By cluster: whether what it reports is young enough (P3).
    fresh: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))

    @property
    def now(self) -> int:
        return self.rules.now

    @property
    def live(self) -> bool:
        """Whether what is decided will be done."""
        return not self.conditions.paused and not self.conditions.dry_run
