"""Counted rows the engine left out: whose they are and why, for acknowledgements, the log, the metric and readers.

Kept by cluster until the engine takes every row of a later roll-up. Judges nothing: the engine does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from bigfleet.engine.batches import NONE
from bigfleet.model.resources import Resources
from bigfleet.shard.contract.outcomes import Level

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bigfleet.engine.batches import Rollup
    from bigfleet.engine.results import RefusedRows
    from bigfleet.model.profile import Profile
    from bigfleet.shard.core.state.state import ShardState

REJECTED = "bigfleet_shard_rows_rejected_total"
# What the engine's count of rejected inputs calls such rows.
REJECTED_AS = "count"
_NAMED = 3


class RefusedNeed(Struct, frozen=True):
    """A row as its cluster told it, and why it is left out."""

    cluster: str
    profile: Profile
    group: str
    aggregate: Resources
    unit: Resources
    why: str


class _Told(Struct, frozen=True):
    reason: str
    needs: tuple[RefusedNeed, ...]


class RefusedDemand:
    """What is left out at the moment; an episode begins with the first such row of a cluster and is logged once."""

    def __init__(self, state: ShardState) -> None:
        self._state = state
        self._told: dict[str, _Told] = {}

    def settle(self, rollup: Rollup, refused: RefusedRows | None) -> None:
        """The engine has looked at a roll-up."""
        cluster, turn = rollup.cluster, self._state.turn
        if refused is None:
            if self._told.pop(cluster, None) is not None:
                turn.log(Level.INFO, "every row of the cluster's rollups is taken again", cluster=cluster)
            return
        turn.count(REJECTED, cluster, amount=refused.total)
        reason = _reason(refused, len(rollup))
        if cluster not in self._told:
            turn.log(
                Level.ERROR,
                "rows of a rollup rejected: nothing is done for them; the others apply",
                cluster=cluster,
                rows=refused.total,
                err=reason,
            )
        self._told[cluster] = _Told(reason, tuple(_need(rollup, each.row, each.why) for each in refused.first))

    def reason(self, cluster: str) -> str:
        """What an operator is told of it; empty where nothing is left out."""
        told = self._told.get(cluster)
        return "" if told is None else told.reason

    def needs(self, cluster: str = "") -> Iterable[RefusedNeed]:
        """The first rows of a cluster, or of each, that are left out."""
        return [need for name in sorted(self._told) if cluster in ("", name) for need in self._told[name].needs]

    def forget(self, cluster: str) -> None:
        self._told.pop(cluster, None)


def _reason(refused: RefusedRows, rows: int) -> str:
    named = [each.why for each in refused.first[:_NAMED]]
    if refused.total > len(named):
        named.append(f"and {refused.total - len(named)} more")
    return f"{refused.total} of {rows} rows left out: {'; '.join(named)}"


def _need(rollup: Rollup, row: int, why: str) -> RefusedNeed:
    group = "" if rollup.group[row] == NONE else rollup.groups[rollup.group[row]]
    aggregate, unit = (
        Resources(
            {name: amount for name, amount in zip(rollup.resources, each[row].tolist(), strict=True) if amount > 0}
        )
        for each in (rollup.aggregate, rollup.min_unit)
    )
    return RefusedNeed(rollup.cluster, rollup.profiles[rollup.profile[row]], group, aggregate, unit, why)
