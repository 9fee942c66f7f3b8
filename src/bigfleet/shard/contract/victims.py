"""Victims for demand of another shard, by the engine's own rules.

A copy of the engine decides about a row nobody has asked for; the engine itself is not touched. The row wants more than
it could get, so its victims are the best ones in the engine's order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigfleet.engine.batches import NONE, Conditions, DemandBatch, Rollup
from bigfleet.engine.policy import RollupGuard
from bigfleet.engine.results import ActionKind
from bigfleet.model.names import INSTANCE_TYPE_LABEL, ZONE_LABEL
from bigfleet.model.profile import Profile
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import MAX_NEED_UNITS

if TYPE_CHECKING:
    from bigfleet.engine.policy import Policy
    from bigfleet.shard.contract.coordination import Ranking, VictimQuestion

# No cluster has such a name: texts of the wire hold no control characters.
_NOBODY = "\x00another shard"


def victims_for(engine: Any, question: VictimQuestion, policy: Policy, now: int) -> Ranking:
    """Machines in the order in which the engine would take them; `engine` is a copy and is used up."""
    decided = policy.with_(max_actions_per_step=0, guard=RollupGuard(enabled=False))
    demand = DemandBatch([_row(question)], [(_NOBODY, True)])
    # It may only preempt: what is free was looked at before anybody asked for a drain.
    result = engine.step(None, demand, decided, now, Conditions(acquire=False, reclaim=False, release=False))
    actions = result.actions.rows() if hasattr(result.actions, "rows") else result.actions
    return tuple(
        (action.machine, action.grace_seconds)
        for action in actions
        if action.kind == ActionKind.PREEMPT and action.need is not None and action.need.cluster == _NOBODY
    )


def _row(question: VictimQuestion) -> Rollup:
    selector = question.selector
    wanted = [*selector.requirements]
    if selector.instance_type:
        wanted.append(Requirement(INSTANCE_TYPE_LABEL, Operator.IN, (selector.instance_type,)))
    if selector.zone:
        wanted.append(Requirement(ZONE_LABEL, Operator.IN, (selector.zone,)))
    names = tuple(sorted({*question.size.names(), *selector.min_unit.names()}))
    amounts = [min(question.count * question.size.get(name), MAX_NEED_UNITS) for name in names]
    return Rollup(
        cluster=_NOBODY,
        profiles=(Profile(wanted, (), question.priority, 0, 0),),
        groups=(),
        resources=names,
        profile=np.zeros(1, np.int32),
        group=np.full(1, NONE, np.int32),
        aggregate=np.array([amounts], np.int64),
        min_unit=np.array([[selector.min_unit.get(name) for name in names]], np.int64),
    )
