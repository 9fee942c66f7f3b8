"""The mirror against a slow, obvious one, and against itself told everything anew."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bigfleet.model.resources import Resources
from bigfleet.operator.core.mirror import facts as f
from bigfleet.operator.core.mirror.mirror import Mirror
from bigfleet.operator.core.mirror.reports import NodeReport
from tests.oracle.mirror import World, answer
from tests.strategies.small_clusters import random_delta, shapes

SEEDS = st.integers(0, 2**32)
MINUTE = 60_000_000_000


def told_anew(world: World, dice: random.Random) -> Mirror:
    """Another mirror of the same world, told in another order."""
    mirror = Mirror(patience=world.patience)
    places: list[f.Delta] = [*world.nodes.values(), *world.gone.values()]
    rest: list[f.Delta] = [*world.pods.values(), *world.requests.values(), *world.budgets.values()]
    dice.shuffle(places)
    dice.shuffle(rest)
    mirror.apply(places)
    mirror.apply(rest)
    mirror.apply(f.NodeGone(name) for name in world.gone)
    for machine in sorted(world.draining):
        mirror.begin(machine)
    for machine in sorted(world.lost):
        mirror.lost(machine)
    mirror.settle(world.now)
    return mirror


def without_version(report: NodeReport) -> dict[str, object]:
    return {name: getattr(report, name) for name in report.__struct_fields__ if name != "version"}


def check(mirror: Mirror, world: World, dice: random.Random) -> None:
    rows = mirror.rows()
    for row in rows:
        assert row.resources == row.unit.scale(row.count)
        assert row.running + row.stranded <= row.count
    wanted = answer(world)
    assert {
        (row.profile.fingerprint, row.group, row.unit.canonical): (row.count, row.running, row.stranded) for row in rows
    } == wanted.rows
    again = told_anew(world, dice)
    assert again.rows() == rows
    reports = {report.machine: report for report in again.reports(anew=True)}
    assert {m: without_version(r) for m, r in reports.items()} == {
        report.machine: without_version(report) for report in mirror.reports(anew=True)
    }
    assert {machine: report.empty for machine, report in reports.items()} == wanted.empty
    assert {machine: report.removable for machine, report in reports.items()} == wanted.removable


def play(seed: int, steps: int) -> None:
    dice = random.Random(seed)
    # Pods came at 0, 1 or 2: some of them are patient and some are not.
    world = dice.choice((World(), World(now=3, patience=2)))
    mirror, known, calm = Mirror(patience=world.patience), shapes(dice), dice.random() < 0.5
    for _ in range(steps):
        batch = [random_delta(dice, world, known, calm=calm) for _ in range(dice.randint(1, 12))]
        mirror.apply(batch)
        machines = sorted(node.machine for node in world.nodes.values() if node.machine)
        if machines and dice.random() < 0.3:
            machine = dice.choice(machines)
            if machine in world.draining:
                world.draining.discard(machine)
                mirror.release(machine)
            elif dice.random() < 0.7:
                world.draining.add(machine)
                mirror.begin(machine)
            else:
                world.lost.add(machine)
                mirror.lost(machine)
        found = mirror.settle(world.now)
        mirror.validate()
        # Nodes that were closed because they were empty open for whoever came all the same.
        occupied = {pod.node for pod in world.pods.values()}
        entered = {node.machine for node in world.nodes.values() if node.closing_since and node.name in occupied}
        wanted = answer(world).reopen
        assert wanted <= set(found.reopen) <= wanted | (entered if world.patience else set())
        check(mirror, world, dice)


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_the_mirror_says_what_a_slow_one_says_however_it_got_there(seed: int) -> None:
    play(seed, steps=4)


@given(SEEDS)
@settings(max_examples=40, deadline=None)
def test_rows_disaggregate_to_the_requests_they_came_from(seed: int) -> None:
    """However requests come, change and go, on a grid or not: every unit is in exactly one row, at most 9 % larger."""
    dice = random.Random(seed)
    mirror, wanted = Mirror(), dict[str, f.RequestSeen]()
    sizes = shapes(dice, 3)
    for step in range(6):
        batch: list[f.Delta] = []
        for _ in range(dice.choice([10, 150])):
            name = f"r-{dice.randrange(220)}"
            if name in wanted and dice.random() < 0.4:
                del wanted[name]
                batch.append(f.RequestGone(name))
                continue
            base = dice.choice(sizes)
            cpu = dice.choice([base.requests.get("cpu"), dice.randrange(100, 20_000)])
            resized = Resources({**dict(base.requests.items()), "cpu": cpu})
            wanted[name] = f.RequestSeen(name, replace(base, requests=resized), dice.choice([1, 1, 2]))
            batch.append(wanted[name])
        mirror.apply(batch)
        mirror.settle(step * 20 * MINUTE)
        mirror.validate()
        _agree(mirror, list(wanted.values()))


def _agree(mirror: Mirror, wanted: list[f.RequestSeen]) -> None:
    rows = mirror.rows()
    names = {(row.profile.fingerprint, row.group) for row in rows}
    assert names == {(each.shape.profile.fingerprint, each.shape.group) for each in wanted if each.units}
    for name in names:
        exact = sorted(
            each.shape.requests.get("cpu")
            for each in wanted
            if (each.shape.profile.fingerprint, each.shape.group) == name
            for _ in range(each.units)
        )
        mine = [row for row in rows if (row.profile.fingerprint, row.group) == name]
        assert len({row.unit for row in mine}) == len(mine)
        told = sorted(row.unit.get("cpu") for row in mine for _ in range(row.count))
        assert len(told) == len(exact)
        assert all(e <= t <= 1.09 * e for e, t in zip(exact, told, strict=True))
        assert max(told) == max(exact)
