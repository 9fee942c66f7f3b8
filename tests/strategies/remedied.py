"""A fleet with one thing changed: what an explanation claims is applied here, outside the engine, and judged.

Works on the oracle's plain objects and on recorded inputs, so it shares nothing with the code that makes the claims.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bigfleet.engine.batches import DemandBatch
from bigfleet.engine.explain import HigherPriority, MoreSupply, Remedy, WithoutConstraint
from bigfleet.engine.policy import RollupGuard
from bigfleet.model.profile import Profile
from tests.oracle.demand import vector
from tests.oracle.entries import folded_profile
from tests.oracle.implementations import EngineRows
from tests.oracle.step import Oracle
from tests.strategies.builders import IDLE, MachineLine, NeedLine, batch, rollup
from tests.strategies.fleets import Size, StepInput, play

if TYPE_CHECKING:
    from collections.abc import Callable

    from bigfleet.engine.batches import Shape
    from bigfleet.engine.results import NeedKey
    from tests.oracle.demand import Row
    from tests.oracle.step import OracleResult


@dataclass
class Fleet:
    """Engine and oracle after the same steps."""

    steps: list[StepInput] = field(default_factory=list)
    oracle: Oracle = field(default_factory=Oracle)
    result: OracleResult | None = None

    @classmethod
    def of(cls, seed: int, size: Size) -> Fleet:
        made = cls()
        for step, result in play(seed, size, made.oracle):
            made.steps.append(step)
            made.result = result
        return made

    def engine(self) -> EngineRows:
        """An engine that has seen the steps."""
        rows = EngineRows()
        for step in self.steps:
            step.feed(rows)
        return rows

    def short_keys(self) -> list[NeedKey]:
        """Needs of which something remains after Preempt."""
        assert self.result is not None
        short = {(s.key.cluster, s.key.fingerprint, s.key.group, s.key.min_unit) for s in self.result.shortfalls}
        gangs = {
            (name, row.profile.fingerprint, row.group)
            for name, cluster in self.oracle.demand.clusters.items()
            for row in cluster.rows.values()
            if row.profile.same is not None
        } & {key[:3] for key in short}
        return [
            v.key
            for v in self.result.verdicts
            if (v.key.cluster, v.key.fingerprint, v.key.group, v.key.min_unit) in short
            or (v.key.cluster, v.key.fingerprint, v.key.group) in gangs
        ]

    # What changes

    def rows_behind(self, key: NeedKey) -> list[Row]:
        """The rows of demand that an entry of this key serves."""
        assert self.result is not None
        served = {(v.key.fingerprint, v.key.group) for v in self.result.verdicts if v.key.cluster == key.cluster}
        found = []
        for row in self.oracle.demand.clusters[key.cluster].rows.values():
            own = (row.profile.fingerprint, row.group)
            gang = row.profile.same is not None
            if own == (key.fingerprint, key.group) and (gang or vector(row.min_unit).canonical == key.min_unit):
                found.append(row)
            elif gang and own not in served and key.group == "":
                folded = folded_profile(row.profile).fingerprint, self._whole(key.cluster, row)
                if folded == (key.fingerprint, key.min_unit):
                    found.append(row)
        return found

    def _whole(self, cluster: str, row: Row) -> str:
        total: dict[str, int] = {}
        for other in self.oracle.demand.clusters[cluster].rows.values():
            if (other.profile.fingerprint, other.group) == (row.profile.fingerprint, row.group):
                for name, amount in other.aggregate.items():
                    total[name] = total.get(name, 0) + amount
        return vector(total).canonical

    def satisfied_by(self, key: NeedKey, remedy: Remedy, at: int) -> tuple[bool, bool]:
        """Whether the need is answered after the change, as the oracle sees it and as a fresh engine does."""
        if isinstance(remedy, MoreSupply):
            return self.with_machines(key, remedy.shape, remedy.count, at)
        if isinstance(remedy, HigherPriority):
            return self.with_profiles(key, lambda profile: varied(profile, priority=remedy.above + 1), at)
        return self.with_profiles(key, lambda profile: without(profile, remedy), at)

    def with_machines(self, key: NeedKey, shape: Shape, count: int, at: int) -> tuple[bool, bool]:
        added = tuple(MachineLine(f"\U0010fffe{n:05}", IDLE, shape) for n in range(count))
        wanted = [(row.profile, row) for row in self.rows_behind(key)]
        return self._answers(key.cluster, wanted, self._next(at, machines=added))

    def with_profiles(self, key: NeedKey, change: Callable[[Profile], Profile], at: int) -> tuple[bool, bool]:
        cluster = self.oracle.demand.clusters[key.cluster]
        behind = self.rows_behind(key)
        wanted = [(change(row.profile), row) for row in behind]
        needs = [
            NeedLine(
                key.cluster,
                change(row.profile) if any(row is other for other in behind) else row.profile,
                row.aggregate,
                row.min_unit,
                row.group,
            )
            for row in cluster.rows.values()
        ]
        asked = DemandBatch(
            [rollup(key.cluster, *needs, overhead=cluster.overhead)], [(key.cluster, cluster.connected)]
        )
        return self._answers(key.cluster, wanted, self._next(at), asked)

    def _next(self, at: int, machines: tuple[MachineLine, ...] = ()) -> StepInput:
        last = self.steps[-1]
        policy = last.policy.with_(guard=RollupGuard())
        return StepInput(now=at, policy=policy, machines=machines, conditions=last.conditions)

    def _answers(
        self, cluster: str, wanted: list[tuple[Profile, Row]], step: StepInput, asked: DemandBatch | None = None
    ) -> tuple[bool, bool]:
        machines = batch(step.machines) if step.machines else None
        answers = []
        for engine in (copy.deepcopy(self.oracle), self.engine()):
            result = engine.step(machines, asked, step.policy, step.now, step.conditions)
            answers.append(all(self._answered(result, cluster, profile, row) for profile, row in wanted))
        return answers[0], answers[1]

    def _answered(self, result: OracleResult, cluster: str, profile: Profile, row: Row) -> bool:
        short = {(s.key.cluster, s.key.fingerprint, s.key.group, s.key.min_unit) for s in result.shortfalls}
        served = {(v.key.cluster, v.key.fingerprint, v.key.group) for v in result.verdicts}
        if (cluster, profile.fingerprint, row.group, vector(row.min_unit).canonical) in short:
            return False
        if profile.same is None or (cluster, profile.fingerprint, row.group) in served:
            return True
        return (cluster, folded_profile(profile).fingerprint, "", self._whole(cluster, row)) not in short


def varied(profile: Profile, **changes: object) -> Profile:
    facts = {
        "requirements": profile.requirements,
        "spread": profile.spread,
        "priority": profile.priority,
        "interruption_bucket": profile.interruption_bucket,
        "reclamation_bucket": profile.reclamation_bucket,
        "tolerations": profile.tolerations,
        "interruption_microdollars": profile.interruption_microdollars,
    }
    return Profile(**{**facts, **changes})  # type: ignore[arg-type]


def constraints(profile: Profile) -> list[str]:
    """Every constraint of a profile in the text form of fingerprints."""
    wanted = [f"{r.key}:{int(r.operator)}:{','.join(r.values)};" for r in profile.requirements]
    return wanted + [f"{s.topology_key}:{s.max_skew}:{int(s.when)};" for s in profile.spread if s.strict]


def without(profile: Profile, remedy: WithoutConstraint) -> Profile:
    gone = remedy.constraint
    return varied(
        profile,
        requirements=[r for r in profile.requirements if f"{r.key}:{int(r.operator)}:{','.join(r.values)};" != gone],
        spread=[s for s in profile.spread if f"{s.topology_key}:{s.max_skew}:{int(s.when)};" != gone],
    )
