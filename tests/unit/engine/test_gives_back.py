"""What nobody uses any more is given back: tables and memory stay bounded through tens of thousands of jobs."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from bigfleet.engine import Engine
from bigfleet.engine.batches import DemandBatch, MachineBatch
from bigfleet.engine.explain import MoreSupply, RemedyKind
from bigfleet.engine.fleet.partitions import MAX_SPLITS
from bigfleet.engine.policy import Policy
from bigfleet.engine.results import ActionKind, NeedKey
from bigfleet.engine.turnover import ROOM, Tables, overgrown
from bigfleet.model.requirement import Operator, Requirement
from tests.strategies.builders import (
    RACK,
    SECOND,
    START,
    NeedLine,
    amounts,
    batch,
    bound,
    demand,
    idle,
    need,
    removed,
    rollup,
    stamp_of,
)

AT_ONCE = 500


def nothing_new() -> MachineBatch:
    """News without content, because a step without news decides nothing."""
    return batch(removed("nobody"))


def resident_megabytes() -> float:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def job(number: int) -> NeedLine:
    """A job with a cluster, group, priority and constraint of its own."""
    own = Requirement("team", Operator.IN, (f"team-{number}",))
    return need(f"job-{number}", 1, priority=number, where=[own], group=f"ns/job-{number}", cpu=1)


def test_tens_of_thousands_of_jobs_leave_tables_and_memory_bounded() -> None:
    """Each job has a profile, group, cluster, machine, shape and stamp nobody had before; 500 of them live at once."""
    engine, sizes, memory = Engine(), list[Tables](), list[float]()
    arena = []
    for wave in range(40):
        jobs = [job(number) for number in range(wave * AT_ONCE, (wave + 1) * AT_ONCE)]
        ended = range(max(0, wave - 1) * AT_ONCE, wave * AT_ONCE)
        lines = [
            bound(f"{n.cluster}-node", n.cluster, stamp=stamp_of(n), labels={"team": n.group}, rack=n.group, cpu=1)
            for n in jobs
        ]
        lines += removed(*(f"job-{number}-node" for number in ended))
        change = DemandBatch([rollup(n.cluster, n) for n in jobs], forgotten=[f"job-{number}" for number in ended])
        engine.step(batch(lines), change, Policy(), START + wave * SECOND)
        sizes.append(engine.tables)
        memory.append(resident_megabytes())
        arena.append(len(engine.fleet.ids.v.arena))
    engine.validate()
    for name in ("profiles", "stamps", "shapes", "classes", "clusters"):
        assert max(getattr(size, name) for size in sizes) <= 2 * AT_ONCE + ROOM + 2 * AT_ONCE, name
    assert max(size.texts for size in sizes) <= 2 * 8 * AT_ONCE + ROOM + 8 * AT_ONCE
    assert max(arena) <= 16 * AT_ONCE * len("job-00000-node")
    # Twenty thousand constraint sets times as many classes would be 400 MB.
    assert max(memory[20:]) - max(memory[:20]) < 64


def test_forgotten_ids_leave_no_bytes_behind() -> None:
    engine = Engine()
    for wave in range(60):
        lines = [idle(f"machine-{wave}-{n}") for n in range(100)]
        lines += removed(*(f"machine-{wave - 1}-{n}" for n in range(100 if wave else 0)))
        engine.step(batch(lines), None, Policy(), START + wave * SECOND)
    assert len(engine.fleet.ids.v.arena) <= 8 * 100 * len("machine-00-00")
    assert [row.id for row in engine.machines(limit=500)] == sorted(f"machine-59-{n}" for n in range(100))
    engine.validate()


def test_nothing_is_given_back_before_a_table_has_doubled() -> None:
    before = Tables(texts=1000, splits=10)
    assert not overgrown(before, before, machines=0)
    assert not overgrown(before._replace(texts=2000 + ROOM), before, machines=0)
    assert overgrown(before._replace(texts=2001 + ROOM), before, machines=0)
    assert not overgrown(before._replace(texts=2001 + ROOM), before, machines=1600)
    assert overgrown(before._replace(splits=MAX_SPLITS), before, machines=0)
    assert not overgrown(before._replace(splits=MAX_SPLITS), Tables(splits=MAX_SPLITS // 2), machines=0)


def test_a_resource_nobody_asks_for_any_more_makes_no_column() -> None:
    engine = Engine()
    for n in range(40):
        wanted = need("c", 1, cpu=1, **{f"vendor.example/part-{n}": 1})
        engine.step(None, demand(wanted), Policy(), START + n * SECOND)
    assert engine.catalog.width <= 20
    (short,) = engine.step(batch(idle("i", cpu=4)), None, Policy(), START + 41 * SECOND).shortfalls.rows()
    assert dict(short.deficit.items()) == amounts(cpu=1, **{"vendor.example/part-39": 1})


def test_ages_tokens_and_links_outlive_it() -> None:
    """Shortfalls go on aging, idle machines go on waiting for release, under other numbers."""
    kept, old = Engine(), Engine()
    gone = [need(f"a{n}", 1, priority=n, cpu=1) for n in range(30)]
    stays = need("z", 5, same=RACK, group="g", cpu=64)
    policy = Policy(reclaim_cap_fraction=0.5)
    first = batch([bound(f"b{n}", "z", rack="r", cpu=1) for n in range(9)], idle("i", rack="r", cpu=1))
    for engine in (kept, old):
        engine.step(first, demand(*gone, stays), policy, START)
        engine.step(None, DemandBatch(forgotten=[n.cluster for n in gone]), policy, START + SECOND)
    for at in range(2, 200, 9):
        old.give_back()
        change = DemandBatch(links=[("z", at % 2 == 0)])
        was, now = (engine.step(nothing_new(), change, policy, START + at * SECOND) for engine in (kept, old))
        assert was.actions.rows() == now.actions.rows()
        assert was.verdicts.rows() == now.verdicts.rows()
        assert was.shortfalls.rows() == now.shortfalls.rows()
        old.validate()
    assert old.tables.clusters == 1


def test_amounts_that_change_in_the_same_step_are_served() -> None:
    """The cluster's units have other numbers afterwards; the row that changed must not look for the old ones."""
    engine = Engine()
    others = [need(f"a{n:02}", 1, cpu=1) for n in range(40)]
    engine.step(batch([idle(f"i{n}", cpu=1) for n in range(9)]), demand(*others, need("z", 1, cpu=1)), Policy(), START)
    engine.step(None, DemandBatch(forgotten=[n.cluster for n in others]), Policy(), START + SECOND)
    engine.give_back()
    result = engine.step(None, demand(need("z", 4, cpu=1)), Policy(), START + 2 * SECOND)
    assert [(a.kind, a.cluster) for a in result.actions.rows()] == [(ActionKind.BOOTSTRAP, "z")] * 4
    engine.validate()


@pytest.mark.parametrize("name", ["A", "n", "z"])
def test_a_cluster_that_takes_the_place_of_another_takes_its_own_turn(name: str) -> None:
    """Clusters are served by name; how many there are says nothing about who they are."""
    engine = Engine()
    engine.step(None, demand(need("m", 1, cpu=1), need("o", 1, cpu=1)), Policy(), START)
    engine.step(None, DemandBatch(forgotten=["o"]), Policy(), START + SECOND)
    engine.give_back()
    lines = batch(idle("i", cpu=1))
    both = demand(need("m", 1, priority=7, cpu=1), need(name, 1, priority=7, cpu=1))
    result = engine.step(lines, both, Policy(), START + 2 * SECOND)
    assert [a.cluster for a in result.actions.rows()] == [min("m", name)]


def test_an_explanation_compares_numbers_of_one_numbering() -> None:
    """What-if steps happen in copies; a copy that numbered anew would be asked about another cluster."""
    engine = Engine()
    asked = need("z", 3, cpu=1)
    engine.step(batch(idle("i", cpu=1)), demand(need("a", 1, cpu=1, gpu=1), asked), Policy(), START)
    engine.step(None, DemandBatch(forgotten=["a"]), Policy(), START + SECOND)
    engine.give_back()
    key = NeedKey("z", asked.profile.fingerprint, "", "cpu=1000")
    assert engine.explain(key, (RemedyKind.PRIORITY,)).remedy is None
    supply = engine.explain(key, (RemedyKind.SUPPLY,)).remedy
    assert isinstance(supply, MoreSupply)
    assert supply.count == 2
