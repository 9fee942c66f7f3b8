"""The guard's memory: the size of each cluster's last applied roll-up and the row of suspicious ones since.

What is suspicious and what confirms it is the policy's (`policy.RollupGuard`, `docs/engine.md` §2).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bigfleet.engine.policy import RollupGuard, RollupSize


@dataclass(slots=True)
class _Baseline:
    size: RollupSize
    suspected: int = 0
    since: int = 0


@dataclass(slots=True)
class Guard:
    """Baselines by cluster."""

    _baselines: dict[str, _Baseline] = field(default_factory=dict)

    def holds(self, cluster: str, size: RollupSize, policy: RollupGuard, now: int) -> bool:
        """Judges a roll-up; False means that it applies and is the baseline from now on."""
        known = self._baselines.get(cluster)
        if known is not None and policy.enabled and policy.suspects(known.size, size):
            known.suspected += 1
            if known.suspected == 1:
                known.since = now
            if not policy.confirmed(known.suspected, now - known.since):
                return True
        self._baselines[cluster] = _Baseline(size)
        return False

    def forget(self, cluster: str) -> None:
        self._baselines.pop(cluster, None)
