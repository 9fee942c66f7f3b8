"""Soft taints by fill: how many, when they change, and how fast."""

from __future__ import annotations

import pytest

from bigfleet.model.profile import Profile
from bigfleet.model.resources import Resources
from bigfleet.operator.core.mirror import facts as f
from bigfleet.operator.core.mirror.levels import THRESHOLDS, level_of
from bigfleet.operator.core.mirror.mirror import Mirror

SECOND = 1_000_000_000
PLAIN = Profile((), (), 0, 0, 0)


def cluster(*fills: int, service: bool = True) -> Mirror:
    """Nodes of a hundred cores, each with so many of them used."""
    mirror = Mirror()
    for number, used in enumerate(fills):
        name = f"n-{number:03}"
        mirror.apply([f.NodeSeen(name, Resources.of(cpu=100), machine=f"m-{name}")])
        if used:
            shape = f.PodShape("default", Resources.of(cpu=used), PLAIN, service=service)
            mirror.apply([f.PodSeen(f"p-{number}", shape, name)])
    mirror.settle(0)
    return mirror


@pytest.mark.parametrize(("fill", "level"), [(0.95, 0), (0.89, 1), (0.5, 3), (0.1, 6), (-0.4, 6)])
def test_a_node_gets_a_taint_for_each_threshold_it_lies_below(fill: float, level: int) -> None:
    assert level_of(fill, None) == level


def test_a_level_changes_only_when_the_fill_is_clearly_past_its_threshold() -> None:
    assert level_of(0.89, 0) == 0
    assert level_of(0.86, 0) == 1
    assert level_of(0.91, 1) == 1
    assert level_of(0.94, 1) == 0
    for before in range(len(THRESHOLDS) + 1):
        for percent in range(-50, 101):
            settled = level_of(percent / 100, before)
            assert level_of(percent / 100, settled) == settled, "a level that never comes to rest"


def test_nodes_without_services_count_as_emptier_where_others_have_some() -> None:
    assert cluster(78).levels() == [("n-000", 1)]
    mixed = cluster(78, 0)
    job = f.PodShape("default", Resources.of(cpu=78), PLAIN, service=False)
    mixed.apply([f.PodSeen("job", job, "n-001")])
    mixed.settle(0)
    assert dict(mixed.levels()) == {"n-000": 1, "n-001": 5}


def test_where_there_are_only_jobs_nodes_count_as_full_as_they_are() -> None:
    """Else all of them would lie below nearly every threshold, and their levels would say nothing."""
    assert cluster(78, service=False).levels() == [("n-000", 1)]


def test_levels_are_looked_at_every_half_minute() -> None:
    mirror = cluster(80)
    assert mirror.levels()
    mirror.apply([f.PodGone("p-0")])
    mirror.settle(29 * SECOND)
    assert mirror.levels() == []
    mirror.settle(30 * SECOND)
    assert mirror.levels() == [("n-000", 6)]
    mirror.settle(60 * SECOND)
    assert mirror.levels() == []


def test_only_some_nodes_change_at_a_time_the_furthest_first() -> None:
    mirror = cluster(*([80] * 30), *([0] * 30))
    first = mirror.levels()
    assert len(first) == 10 and {level for _, level in first} == {6}
    changed = set(first)
    for number in range(1, 8):
        mirror.settle(number * 30 * SECOND)
        changed.update(mirror.levels())
    assert len(changed) == 60


def test_a_node_with_devices_has_more_taints_than_any_other_from_its_first_sight_on() -> None:
    mirror = cluster(0, 80)
    emptiest = max(level for _, level in mirror.levels())
    gpus = Resources({"cpu": 100, "nvidia.com/gpu": 8})
    trains = f.PodShape("default", Resources({"cpu": 10, "nvidia.com/gpu": 8}), PLAIN)
    mirror.apply([f.NodeSeen("n-gpu", gpus, machine="m-gpu"), f.PodSeen("p-gpu", trains, "n-gpu")])
    mirror.settle(SECOND)
    [(name, level)] = mirror.levels()
    assert name == "n-gpu" and level > emptiest
    mirror.settle(2 * SECOND)
    assert mirror.levels() == []
    mirror.apply([f.PodGone("p-gpu")])
    mirror.settle(31 * SECOND)
    assert mirror.levels() == [("n-gpu", level + len(THRESHOLDS))]


def spot_and_firm(*, firm_last: bool) -> Mirror:
    """A full node that may be interrupted, a full one that may not, and one with devices that may not."""
    mirror = Mirror(firm_last=firm_last)
    shape = f.PodShape("default", Resources.of(cpu=95), PLAIN)
    for name, kind in (("firm", "on-demand"), ("gpu", "on-demand"), ("spot", "spot")):
        has = Resources({"cpu": 100, **({"nvidia.com/gpu": 1} if name == "gpu" else {})})
        labels = (("bigfleet.lucy.sh/capacity-type", kind),)
        mirror.apply([f.NodeSeen(name, has, labels, machine=f"m-{name}"), f.PodSeen(f"p-{name}", shape, name)])
    mirror.settle(0)
    return mirror


def test_where_precious_pods_are_kept_off_spot_others_are_kept_off_what_is_not_interrupted() -> None:
    """Those have no other nodes: whoever may stand on spot would take their room, and it would be bought again."""
    told = dict(spot_and_firm(firm_last=True).levels())
    emptiest = len(THRESHOLDS)
    assert told["spot"] == 0
    assert told["firm"] > emptiest
    assert told["gpu"] > told["firm"] + emptiest
    assert dict(spot_and_firm(firm_last=False).levels())["firm"] == 0, "without the rule they would be driven onto spot"


def test_nodes_are_spared_no_longer_once_nothing_is_interruptible() -> None:
    mirror = spot_and_firm(firm_last=True)
    mirror.levels()
    mirror.apply([f.PodGone("p-spot"), f.NodeGone("spot")])
    mirror.settle(60 * SECOND)
    assert dict(mirror.levels())["firm"] == 0
