"""The empty roll-up guard: holds a roll-up that suddenly loses most of a cluster's demand (`docs/engine.md` §2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bigfleet.engine.policy import RollupGuard


@dataclass(slots=True)
class _Baseline:
    """The last applied roll-up of a cluster and the row of suspicious ones since."""

    rows: int
    volume: Mapping[str, int]
    suspicious: int = 0
    first: int = 0


@dataclass(slots=True)
class Guard:
    """Baselines by cluster."""

    _baselines: dict[str, _Baseline] = field(default_factory=dict)

    def holds(self, cluster: str, rows: int, volume: Mapping[str, int], policy: RollupGuard, now: int) -> bool:
        """Judges a roll-up; False means that it applies and is the baseline from now on."""
        known = self._baselines.get(cluster)
        if known is not None and policy.enabled and _suspicious(known, rows, volume, policy):
            known.suspicious += 1
            if known.suspicious == 1:
                known.first = now
            if known.suspicious < policy.consecutive or now - known.first < policy.min_duration_ns:
                return True
        self._baselines[cluster] = _Baseline(rows, dict(volume))
        return False

    def forget(self, cluster: str) -> None:
        self._baselines.pop(cluster, None)


def _suspicious(known: _Baseline, rows: int, volume: Mapping[str, int], policy: RollupGuard) -> bool:
    if known.rows < policy.min_rows:
        return False
    if rows < policy.retain_fraction * known.rows:
        return True
    kept = [(amount, volume.get(name, 0)) for name, amount in known.volume.items() if amount > 0]
    return bool(kept) and all(now < policy.retain_fraction * before for before, now in kept)
