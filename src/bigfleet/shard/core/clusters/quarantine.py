"""Roll-ups that suddenly lose most of a cluster's demand: what the journal remembers, and the check after a restart.

The engine guards demand while it runs, but its baselines die with the process. The last one of every cluster is
journalled here, and until a cluster's first roll-up has been accepted by this process, that baseline is the guard.
What is suspicious and what confirms it is not said here: `engine.policy.RollupGuard` judges for both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec.json import encode

from bigfleet.engine.batches import Rollup
from bigfleet.engine.policy import SECOND, RollupGuard, RollupSize
from bigfleet.shard.contract.events import Table
from bigfleet.shard.contract.outcomes import Level
from bigfleet.shard.core.state.state import ShardState

_WORTH_WRITING = 0.25
# What a cluster's roll-up amounts to is worked out so long after it was accepted: it is a baseline and no record, and
# most roll-ups are replaced before anybody could ask.
_LOOK_AFTER = 10 * SECOND


class Baseline(RollupSize):
    """Size of the last accepted roll-up, as the journal keeps it."""

    __slots__ = ()

    @classmethod
    def of(cls, rollup: Rollup) -> Baseline:
        totals = rollup.aggregate.sum(axis=0) if len(rollup) else [0] * len(rollup.resources)
        return cls(
            len(rollup), {name: int(total) for name, total in zip(rollup.resources, totals, strict=True) if total}
        )

    def near(self, other: Baseline) -> bool:
        """Close enough that journalling the difference is not worth a write."""
        pairs = [(self.rows, other.rows)]
        pairs += [(self.volume.get(n, 0), other.volume.get(n, 0)) for n in self.volume.keys() | other.volume.keys()]
        return all(abs(mine - theirs) <= _WORTH_WRITING * max(mine, theirs) for mine, theirs in pairs)


@dataclass(slots=True)
class Held:
    """Suspicious roll-ups in a row."""

    count: int
    since: int


class Quarantine:
    """Baselines in the journal and roll-ups held back on their account."""

    def __init__(self, state: ShardState, guard: RollupGuard, rows: Mapping[tuple[Table, str], str]) -> None:
        self._state = state
        self._turn = state.turn
        self._guard = guard
        self._journalled: dict[str, Baseline] = {}
        self._first: set[str] = set()
        self._held: dict[str, Held] = {}
        self._accepted: dict[str, Baseline | Rollup] = {}
        # Clusters whose accepted roll-up may have to be journalled → since when, the oldest first.
        self._unlooked: dict[str, int] = {}
        for (table, cluster), text in rows.items():
            baseline = _parse(text) if table == Table.GUARD else None
            if baseline is not None:
                self._journalled[cluster] = baseline
                self._first.add(cluster)
                self._accepted[cluster] = baseline

    @property
    def held(self) -> dict[str, int]:
        """Clusters whose demand is held back → roll-ups in a row."""
        return {cluster: held.count for cluster, held in sorted(self._held.items())}

    def admits(self, rollup: Rollup) -> bool:
        """Whether a roll-up may reach the engine; False holds it against the journalled baseline."""
        cluster = rollup.cluster
        if cluster not in self._first or not self._guard.enabled:
            return True
        if not self._guard.suspects(self._journalled[cluster], Baseline.of(rollup)):
            return True
        held = self._note_held(cluster)
        if self._guard.confirmed(held.count, self._state.now - held.since):
            return True
        self._warn(cluster, len(rollup), held)
        return False

    def note_applied(self, rollup: Rollup) -> None:
        """The engine took it: the new baseline."""
        cluster = rollup.cluster
        self._first.discard(cluster)
        before = self._baseline(cluster) if cluster in self._held else None
        self._accepted[cluster] = rollup
        if self._held.pop(cluster, None) is not None and before is not None:
            baseline = self._baseline(cluster)
            if baseline is not None and self._guard.suspects(before, baseline):
                self._turn.log(
                    Level.WARNING,
                    "quarantined rollup accepted: the loss of demand was confirmed",
                    cluster=cluster,
                    previous_rows=before.rows,
                    new_rows=baseline.rows,
                )
        if cluster not in self._journalled:
            self._look(cluster)
        else:
            self._unlooked.setdefault(cluster, self._state.now)

    def keep_baselines(self) -> None:
        """After a step: journal what has changed for long enough and by enough."""
        due = self._state.now - _LOOK_AFTER
        for cluster in [name for name, since in self._unlooked.items() if since <= due]:
            del self._unlooked[cluster]
            self._look(cluster)

    def _look(self, cluster: str) -> None:
        baseline, known = self._baseline(cluster), self._journalled.get(cluster)
        if baseline is not None and (known is None or not known.near(baseline)):
            self._journalled[cluster] = baseline
            text = encode({"rows": baseline.rows, "volume": baseline.volume}, order="sorted").decode()
            self._turn.write(Table.GUARD, cluster, text, lazy=True)

    def _baseline(self, cluster: str) -> Baseline | None:
        """What was accepted last of a cluster."""
        accepted = self._accepted.get(cluster)
        if isinstance(accepted, Rollup):
            accepted = self._accepted[cluster] = Baseline.of(accepted)
        return accepted

    def note_held(self, rollup: Rollup) -> None:
        """The engine holds it."""
        self._warn(rollup.cluster, len(rollup), self._note_held(rollup.cluster))

    @property
    def unheard(self) -> bool:
        """Whether a cluster that asked for something before the restart has not said since what it wants."""
        return any(self._journalled[cluster].rows for cluster in self._first)

    @property
    def known(self) -> Iterable[str]:
        """Clusters with a baseline."""
        return self._accepted.keys()

    def forget(self, cluster: str) -> None:
        """The cluster left for good."""
        self._first.discard(cluster)
        self._held.pop(cluster, None)
        self._accepted.pop(cluster, None)
        self._unlooked.pop(cluster, None)
        if self._journalled.pop(cluster, None) is not None:
            self._turn.erase(Table.GUARD, cluster)

    def _note_held(self, cluster: str) -> Held:
        held = self._held.setdefault(cluster, Held(0, self._state.now))
        held.count += 1
        return held

    def _warn(self, cluster: str, rows: int, held: Held) -> None:
        before = self._baseline(cluster)
        self._turn.log(
            Level.WARNING,
            "rollup quarantined: it would withdraw nearly all demand of the cluster",
            cluster=cluster,
            previous_rows=before.rows if before is not None else 0,
            new_rows=rows,
            held_consecutive=held.count,
            accepted_after=self._guard.consecutive,
        )


def _parse(text: str) -> Baseline | None:
    """A row that cannot be read is as good as none: the first roll-up is then accepted."""
    try:
        found = json.loads(text)
        return Baseline(int(found["rows"]), {str(name): int(amount) for name, amount in found["volume"].items()})
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
