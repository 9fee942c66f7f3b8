"""A scenario's settings as the shard's configuration: the same a process would be given."""

from __future__ import annotations

from dataclasses import replace

from bigfleet.shard.contract.config import ShardConfig
from bigfleet.sim.scenario.scenario import Mode, OperatorKind, Preset, Scenario
from bigfleet.virtual.kernel import SECOND


def shard_config(scenario: Scenario, shard: str, providers: list[str]) -> ShardConfig:
    """The shard's configuration for a scenario: the same settings a process would be given."""
    own, rails = scenario.policy, scenario.policy.preset is Preset.PRODUCTION
    base = ShardConfig(
        id=shard,
        providers=tuple(sorted(providers)),
        cycle_interval=scenario.shard.cycle,
        reconcile_interval=scenario.shard.cycle,
        incremental_reconcile=True,
        full_list_interval=scenario.shard.full_list_every,
        transition_poll_interval=0,
        drain_after_grace=scenario.shard.drain_after_grace,
        local_bootstrap=scenario.mode is Mode.INLINE,
        reclaim_hold=120 * SECOND if rails else 0,
        reclaim_cap_fraction=0.05 if rails else 0.0,
        empty_rollup_guard=rails,
        placement=any((spec.operator or scenario.operator) is OperatorKind.PLACEMENT for spec in scenario.clusters),
        consolidate=rails,
        with_coordinator=scenario.coordinator is not None,
    )
    changes = {
        "reclaim_hold": own.reclaim_hold,
        "reclaim_cap_fraction": own.reclaim_cap,
        "reclaim_grace": own.reclaim_grace,
        "empty_rollup_guard": own.guard,
        "idle_hold_on_demand": own.idle_hold_on_demand,
        "idle_hold_spot": own.idle_hold_spot,
        "max_actions_per_cycle": own.max_actions,
        "consolidate": own.consolidate,
        "eviction_rate": own.eviction_rate,
    }
    return replace(base, **{name: value for name, value in changes.items() if value is not None})  # type: ignore[arg-type]
