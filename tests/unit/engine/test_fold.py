"""Folding: gangs that one machine can hold become plain demand and need no domain."""

from __future__ import annotations

from typing import Any

from bigfleet.engine.batches import Stamp
from bigfleet.engine.policy import Policy
from bigfleet.engine.results import ActionKind
from tests.oracle.entries import folded_profile
from tests.oracle.implementations import BOTH
from tests.strategies.asking import bootstraps, decide, of_kind, reclaims
from tests.strategies.builders import (
    CREATING,
    RACK,
    START,
    ZONE,
    batch,
    bound,
    demand,
    idle,
    machine,
    need,
    several,
    slot,
    stamp_of,
)

pytestmark = BOTH


def test_folds_same_size_gangs(make: Any) -> None:
    gangs = [
        need("c", 4, same=RACK, group=f"g{n}", spread=(ZONE, 2), interruption=8, reclamation=16, priority=7, cpu=1)
        for n in range(3)
    ]
    engine = make()
    engine.step(None, demand(gangs[0]), Policy(), START)
    result = engine.step(batch(several(9, idle, "i", rack="r", cpu=4)), demand(*gangs), Policy(), START + 10)
    (row,) = result.verdicts
    assert row.key.fingerprint == folded_profile(gangs[0].profile).fingerprint
    assert (row.key.group, row.key.min_unit) == ("", "cpu=4000")
    assert row.arrival == START
    assert row.priority == 7
    assert len(bootstraps(result)) == 3
    assert all(a.need == row.key for a in result.actions)


def test_different_sizes_fold_separately(make: Any) -> None:
    small, large = need("c", 2, same=RACK, group="g1", cpu=1), need("c", 4, same=RACK, group="g2", cpu=1)
    result = decide(make, [several(3, idle, "i", rack="r", cpu=4)], small, large)
    assert [v.key.min_unit for v in result.verdicts] == ["cpu=4000", "cpu=2000"]


def test_unfoldable_passes_through_with_same(make: Any) -> None:
    gang = need("c", 4, same=RACK, group="g", cpu=2)
    result = decide(make, [several(3, idle, "i", rack="r", cpu=4)], gang)
    assert result.verdicts[0].key.fingerprint == gang.profile.fingerprint
    assert (result.verdicts[0].key.group, result.verdicts[0].key.min_unit) == ("g", "")
    assert result.verdicts[0].domain == "r"


def test_foldability_tiers(make: Any) -> None:
    gang = need("c", 4, same=RACK, group="g", cpu=1)
    folded = folded_profile(gang.profile).fingerprint
    for line in (
        idle("m", rack="r", cpu=4),
        slot("m", rack="r", cpu=4),
        bound("m", "c", rack="r", cpu=4),
        machine("m", 4, "c", rack="r", cpu=4),
        machine("m", CREATING, "c", rack="r", cpu=4, stamp=Stamp(fingerprint=gang.profile.fingerprint, group="g")),
        machine("m", CREATING, "c", rack="r", cpu=4, stamp=Stamp(fingerprint=folded)),
    ):
        assert decide(make, [line], gang).verdicts[0].key.fingerprint == folded
    for line in (
        bound("m", "other", rack="r", cpu=4),
        idle("m", rack="r", cpu=3),
        idle("m", cpu=4),
        machine("m", CREATING, "c", rack="r", cpu=4),
    ):
        assert decide(make, [line], gang).verdicts[0].key.fingerprint == gang.profile.fingerprint


def test_ordering_and_cluster_separation(make: Any) -> None:
    gangs = [need(cluster, 4, same=RACK, group=f"g{n}", cpu=1) for n in range(2) for cluster in ("b", "a")]
    plain = need("b", 2, cpu=1)
    lines = several(9, idle, "i", rack="r", cpu=4)
    results = [decide(make, lines, *order) for order in ([*gangs, plain], [plain, *reversed(gangs)])]
    assert results[0].actions == results[1].actions
    assert [(v.key.cluster, v.claimed) for v in results[0].verdicts] == [
        (v.key.cluster, v.claimed) for v in results[1].verdicts
    ]
    assert sorted((v.key.cluster, v.claimed) for v in results[0].verdicts) == [("a", 2), ("b", 1), ("b", 2)]


def test_no_same_passthrough(make: Any) -> None:
    wanted = need("c", 3, group="plain rows may carry a group", cpu=1)
    result = decide(make, [idle("i", cpu=4)], wanted)
    assert result.verdicts[0].key.fingerprint == wanted.profile.fingerprint
    assert result.verdicts[0].key.group == wanted.group


def test_improvement_a_gang_that_owns_its_machines_is_not_folded_away_from_them(make: Any) -> None:
    """The reference folds as soon as one large machine is free anywhere and drops the gang's own machines."""
    gang = need("c", 4, same=RACK, group="g", cpu=2)
    own = several(2, bound, "own", "c", rack="r", cpu=4, stamp=stamp_of(gang))
    result = decide(make, [*own, idle("large", rack="q", cpu=16)], gang)
    assert not result.actions
    assert result.verdicts[0].domain == "r"


def test_improvement_fold_stays_while_its_machine_is_being_created(make: Any) -> None:
    """In the reference the fold ends when the slot becomes Creating, and the gang buys again."""
    gang = need("c", 4, same=RACK, group="g", cpu=1)
    engine, policy = make(), Policy()
    line = slot("s", rack="r", cpu=4)
    result = engine.step(batch(line, *several(4, slot, "t", rack="q", cpu=1)), demand(gang), policy, START)
    (action,) = of_kind(result, ActionKind.PROVISION)
    assert action.need is not None
    mark = Stamp(fingerprint=action.need.fingerprint, group=action.need.group)
    result = engine.step(batch(line.to(CREATING, "c", mark)), None, policy, START + 10)
    assert not result.actions
    assert result.verdicts[0].satisfied


def test_improvement_folded_row_needs_the_same_key(make: Any) -> None:
    """A machine without the rack label cannot host pods that must share a rack, even if it holds them all."""
    gang = need("c", 4, same=RACK, group="g", cpu=1)
    result = decide(make, [bound("bare", "c", cpu=4), idle("racked", rack="r", cpu=4)], gang)
    assert bootstraps(result) == ["racked"]
    assert reclaims(result) == ["bare"]
