"""The oracle's own small judgements: who matches whom, dollars, graces, caps and holds.

Written from docs/engine.md (R1.2, R1.3, R4.6, R5.2, R5.3) and the tables it names. The product has code for each of
these; an oracle that called it would share its mistakes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bigfleet.engine.policy import Policy
    from bigfleet.model.profile import Profile
    from bigfleet.model.requirement import Requirement
    from bigfleet.model.taint import Taint, Toleration

HOSTNAME = "kubernetes.io/hostname"
IN, NOT_IN, EXISTS, DOES_NOT_EXIST, SAME = 1, 2, 3, 4, 5
ON_DEMAND, SPOT = 3, 4
STRICT = 1


def matches(profile: Profile, lookup: Callable[[str], str | None], taints: Iterable[Taint]) -> bool:
    """Every requirement is met and every taint that matters is tolerated."""
    if not all(_meets(requirement, lookup(requirement.key)) for requirement in profile.requirements):
        return False
    return all(
        any(_tolerates(toleration, taint) for toleration in profile.tolerations) for taint in taints if matters(taint)
    )


def _meets(requirement: Requirement, value: str | None) -> bool:
    operator = int(requirement.operator)
    if operator == IN:
        return value in requirement.values
    if operator == NOT_IN:
        return value not in requirement.values
    if operator == EXISTS:
        return value is not None
    if operator == DOES_NOT_EXIST:
        return value is None
    if operator == SAME:
        return value is not None and (value in requirement.values or not requirement.values)
    return False


def matters(taint: Taint) -> bool:
    return taint.effect in ("NoSchedule", "NoExecute") and not taint.key.startswith("node.kubernetes.io/")


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value


def bucket_dollars(bucket: int) -> float:
    """Upper bound of a penalty bucket: nothing, nothing, half a dollar, then doubling from one; the last is pinned."""
    if bucket < 2:
        return 0.0
    if bucket == 27:
        return math.inf
    return 2.0 ** (bucket - 3)


def times(factor: float, dollars: float) -> float:
    """0 × infinity = 0."""
    return 0.0 if factor == 0 or dollars == 0 else factor * dollars


def grace_seconds(gap: int) -> int:
    for above, seconds in ((900_000, 10), (500_000, 30), (100_000, 120)):
        if gap > above:
            return seconds
    return 600


def cap_size(policy: Policy, configured: int) -> int:
    return max(1, math.floor(policy.reclaim_cap_fraction * configured))


def idle_hold(policy: Policy, provider: str, capacity_type: int) -> int:
    """0: such a machine is never released."""
    hold = policy.idle_hold_by_provider.get(provider, policy.idle_hold)
    if capacity_type == ON_DEMAND:
        return hold.on_demand_ns
    return hold.spot_ns if capacity_type == SPOT else 0


def strict_spread(profile: Profile) -> tuple[str, int] | None:
    """Key and skew of the spread in force, if any; Same wins over it."""
    if same_key(profile) is not None:
        return None
    for spread in profile.spread:
        if int(spread.when) == STRICT and spread.topology_key != HOSTNAME:
            return spread.topology_key, max(1, spread.max_skew)
    return None


def same_key(profile: Profile) -> str | None:
    for requirement in profile.requirements:
        if int(requirement.operator) == SAME:
            return requirement.key
    return None
