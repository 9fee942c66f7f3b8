"""A second account of the machines an engine was told about, kept only to check what it does with them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bigfleet.engine.results import ActionKind, Verdict
from bigfleet.model.profile import Profile
from bigfleet.model.taint import tolerates
from tests.strategies.builders import (
    CONFIGURED,
    CONFIGURING,
    CREATING,
    HOSTNAME,
    IDLE,
    INSTANCE_TYPE,
    SPECULATIVE,
    ZONE,
)

if TYPE_CHECKING:
    from tests.oracle.step import OracleResult
    from tests.strategies.builders import MachineLine
    from tests.strategies.fleets import StepInput


@dataclass
class Ledger:
    """Machines, demand and links after the inputs so far."""

    machines: dict[str, MachineLine] = field(default_factory=dict)
    connected: dict[str, bool] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)
    overhead: dict[str, dict[str, int]] = field(default_factory=dict)
    profiles: dict[str, Profile] = field(default_factory=dict)

    def apply(self, step: StepInput, result: OracleResult) -> None:
        seen: set[str] = set()
        for line in step.machines:
            if line.id in seen or not good(line):
                seen.add(line.id)
                continue
            seen.add(line.id)
            if line.state:
                self.machines[line.id] = line
            else:
                self.machines.pop(line.id, None)
        for name in step.forgotten:
            self.connected.pop(name, None)
            self.ready.discard(name)
            self.overhead.pop(name, None)
        for asked in step.rollups:
            self.ready.add(asked.cluster)
            self.connected[asked.cluster] = True
            if result.rollups[asked.cluster] == "applied":
                self.overhead[asked.cluster] = dict(asked.overhead)
            self.profiles.update({need.profile.fingerprint: need.profile for need in asked.needs})
        self.connected.update(dict(step.links))

    def check_actions(self, step: StepInput, result: OracleResult) -> None:
        """No machine used twice, and every action on a machine in the state it needs."""
        ids = [action.machine for action in result.actions]
        assert len(ids) == len(set(ids)), "a machine appears in two actions"
        tripped = {
            (b.provider, b.instance_type, b.zone, b.capacity_type)
            for b in step.conditions.breakers
            if step.now < b.until
        }
        for action in result.actions:
            line = self.machines[action.machine]
            assert line.shape is not None
            shape = line.shape
            if action.kind in (ActionKind.BOOTSTRAP, ActionKind.PROVISION):
                wanted = IDLE if action.kind == ActionKind.BOOTSTRAP else SPECULATIVE
                assert line.state == wanted
                assert step.now >= line.not_before
                assert self.connected[action.cluster]
                assert step.conditions.acquire
                if wanted == SPECULATIVE:
                    assert (shape.provider, shape.instance_type, shape.zone, shape.capacity_type) not in tripped
            elif action.kind == ActionKind.DELETE:
                assert line.state == IDLE
                assert shape.capacity_type in (3, 4)
            else:
                assert line.state == CONFIGURED
                assert line.cluster == action.cluster
                assert action.kind == ActionKind.PREEMPT or action.cluster in self.ready

    def check_capacity(self, result: OracleResult) -> None:
        """What all entries together were credited with is not more than there is."""
        in_use = {
            line.id
            for line in self.machines.values()
            if line.state in (CONFIGURED, CONFIGURING, CREATING, IDLE, SPECULATIVE)
        }
        assert sum(v.claimed for v in result.verdicts) <= len(in_use)
        bound = [m for m in self.machines.values() if m.state in (CONFIGURED, CONFIGURING, CREATING)]
        credited = sum(v.claimed - v.bootstraps - v.provisions for v in result.verdicts)
        reclaimed = sum(action.kind == ActionKind.RECLAIM for action in result.actions)
        assert credited + reclaimed <= len(bound)

    def check_ruling_23(self, step: StepInput, result: OracleResult) -> None:
        """A plain, unparked, connected need is not short while only lower needs hold machines that would help it."""
        if not step.conditions.preempt:
            return
        victims = {action.machine for action in result.actions if action.kind == ActionKind.PREEMPT}
        highest: dict[str, int] = {}
        for other in result.verdicts:
            highest[other.key.cluster] = max(highest.get(other.key.cluster, other.priority), other.priority)
        short = {s.key: s for s in result.shortfalls if not s.topology_constrained}
        for entry in result.verdicts:
            profile = self.profiles.get(entry.key.fingerprint)
            if entry.key not in short or profile is None or not self.connected.get(entry.key.cluster):
                continue
            for line in self.machines.values():
                if line.state != CONFIGURED or line.cluster == entry.key.cluster or line.id in victims:
                    continue
                stamped = line.stamp.priority if line.stamp else 0
                if max(highest.get(line.cluster, stamped), stamped) >= entry.priority:
                    continue
                assert not self._helps(line, profile, entry, dict(short[entry.key].deficit.items())), (entry, line)

    def _helps(self, line: MachineLine, profile: Profile, entry: Verdict, deficit: dict[str, int]) -> bool:
        assert line.shape is not None
        over = self.overhead.get(entry.key.cluster, {})
        have = {name: amount - over.get(name, 0) for name, amount in line.shape.allocatable.items()}
        floor = dict(pair.split("=") for pair in entry.key.min_unit.split(",") if pair)
        return (
            all(r.matches(attribute(line, r.key)) for r in profile.requirements)
            and tolerates(profile.tolerations, line.shape.taints)
            and all(have.get(name, 0) >= int(amount) for name, amount in floor.items())
            and any(have.get(name, 0) > 0 for name in deficit)
        )


def attribute(line: MachineLine, key: str) -> str | None:
    assert line.shape is not None
    fixed = {HOSTNAME: line.id, INSTANCE_TYPE: line.shape.instance_type, ZONE: line.shape.zone}
    return fixed.get(key) or dict(line.shape.labels).get(key)


def good(line: MachineLine) -> bool:
    """Whether the record may be believed."""
    if not line.id or line.state > 8:
        return False
    if not line.state:
        return True
    assert line.shape is not None
    return (
        math.isfinite(line.shape.price)
        and line.shape.price >= 0
        and 0 <= line.shape.probability <= 1
        and not (line.state in (5, 6) and not line.cluster)
        and not (line.state in (1, 3, 7) and line.cluster)
        and all(amount <= 2**40 for _, amount in line.shape.allocatable.items())
    )
