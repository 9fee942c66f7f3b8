"""Between the engine's policy, as a recording holds it, and the `policy:` of a scenario, as people write it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bigfleet.engine.policy import Policy
from bigfleet.sim.document.document import Nanoseconds
from bigfleet.sim.scenario.scenario import PolicySettings, Preset
from bigfleet.virtual.kernel import SECOND


def settings_of(policy: Policy) -> PolicySettings:
    """What a shard with this policy was told."""
    return PolicySettings(
        reclaim_hold=Nanoseconds(policy.reclaim_hold_ns),
        reclaim_cap=policy.reclaim_cap_fraction,
        reclaim_grace=Nanoseconds(policy.reclaim_grace_seconds * SECOND),
        guard=policy.guard.enabled,
        idle_hold_on_demand=Nanoseconds(policy.idle_hold.on_demand_ns),
        idle_hold_spot=Nanoseconds(policy.idle_hold.spot_ns),
        max_actions=policy.max_actions_per_step,
    )


def changed(policy: Policy, changes: Mapping[str, Any]) -> Policy:
    """The policy with some of a scenario's settings instead of its own; `preset` sets all the others anew."""
    settings = PolicySettings(**changes)
    if "preset" in changes:
        rails = Policy.production() if settings.preset is Preset.PRODUCTION else Policy()
        policy = replace(rails, cycle_ns=policy.cycle_ns)
    own: dict[str, Any] = {
        "reclaim_hold_ns": settings.reclaim_hold,
        "reclaim_cap_fraction": settings.reclaim_cap,
        "reclaim_grace_seconds": None if settings.reclaim_grace is None else settings.reclaim_grace // SECOND,
        "max_actions_per_step": settings.max_actions,
        "guard": None if settings.guard is None else replace(policy.guard, enabled=settings.guard),
    }
    holds = {"on_demand_ns": settings.idle_hold_on_demand, "spot_ns": settings.idle_hold_spot}
    own["idle_hold"] = replace(policy.idle_hold, **_given(holds))
    return replace(policy, **_given(own))


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
