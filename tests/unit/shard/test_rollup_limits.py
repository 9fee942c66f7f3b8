"""One cluster's roll-up cannot take what belongs to others: limits with names, bounded memory, nobody else notices."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from bigfleet.engine.results import UnmetReason
from bigfleet.shard.contract import events as ev
from bigfleet.shard.contract import limits
from bigfleet.shard.streams.codec import node_reported
from bigfleet.shard.streams.rollup_codec import RollupDecoder, RollupError
from bigfleet.wire import capacity_pb2, shard_pb2
from tests.strategies.builders import NeedLine, need
from tests.strategies.shard_world import S, World, cpu

Need = capacity_pb2.CapacityNeed
MEBIBYTE = 1 << 20


def rollup(*needs: Need, cluster: str = "c") -> bytes:
    return capacity_pb2.ClusterCapacityNeeds(
        cluster_id=cluster, timestamp_unix_nanos=1, needs=needs
    ).SerializeToString()


def one(**fields: object) -> Need:
    return Need(aggregate_resources={"cpu": "1"}, min_unit={"cpu": "1"}, priority=1, **fields)  # type: ignore[arg-type]


def named(names: int, prefix: str = "example.com/device") -> Need:
    amounts = {f"{prefix}-{number}": "1" for number in range(names)}
    return Need(aggregate_resources=amounts, min_unit=amounts)


def requirement(values: int = 1, text: str = "v") -> capacity_pb2.NodeSelectorRequirement:
    return capacity_pb2.NodeSelectorRequirement(key="k", operator=0, values=[f"{text}{n}" for n in range(values)])  # type: ignore[arg-type]


POISON: dict[str, tuple[Callable[[], bytes], int]] = {
    "names in one row": (lambda: rollup(named(5000)), limits.RESOURCES),
    "names in all rows": (lambda: rollup(*(named(1, f"d{n}") for n in range(300))), limits.RESOURCES),
    "requirements": (lambda: rollup(one(requirements=[requirement()] * 65)), limits.REQUIREMENTS),
    "values": (lambda: rollup(one(requirements=[requirement(5000)])), limits.VALUES),
    "spreads": (
        lambda: rollup(one(spread=[capacity_pb2.TopologySpread(topology_key=f"k{n}") for n in range(17)])),
        limits.SPREADS,
    ),
    "tolerations": (
        lambda: rollup(one(tolerations=[capacity_pb2.Toleration(key=f"k{n}") for n in range(65)])),
        limits.TOLERATIONS,
    ),
    "text": (lambda: rollup(one(requirements=[requirement(1, "x" * 2000)])), limits.TEXT_BYTES),
    "group": (lambda: rollup(one(group="g" * 5000)), limits.GROUP_BYTES),
}


@pytest.mark.parametrize("what", POISON)
def test_what_is_over_a_limit_is_refused_with_the_limit_named(what: str) -> None:
    body, limit = POISON[what]
    decoder = RollupDecoder()
    for decode in (decoder.decode, decoder.parsed):
        with pytest.raises(RollupError, match=f"at most {limit} are accepted"):
            decode(body())
    # A good one is read by the same decoder as before.
    assert len(decoder.decode(rollup(one()))[0]) == 1


def test_too_many_rows_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROWS", 10)
    body = rollup(*(one(group=f"g{n}") for n in range(11)))
    decoder = RollupDecoder()
    for decode in (decoder.decode, decoder.parsed):
        with pytest.raises(RollupError, match="at most 10 are accepted"):
            decode(body)


def test_a_poisonous_rollup_costs_little_to_refuse() -> None:
    body = rollup(*(named(5000, f"d{row}") for row in range(20)))
    decoder = RollupDecoder()
    tracemalloc.start()
    try:
        with pytest.raises(RollupError):
            decoder.decode(body)
        assert tracemalloc.get_traced_memory()[1] < 4 * MEBIBYTE
    finally:
        tracemalloc.stop()


def test_what_is_remembered_of_large_rollups_is_bounded_in_bytes() -> None:
    """Rows of the largest texts allowed: every constraint set is large, and no two are the same."""
    decoder = RollupDecoder()
    for turn in range(3):
        values = [f"{turn}-{n}-" + "x" * 900 for n in range(60)]
        needs = [one(group=f"{turn}-{row}", requirements=[_in(f"k{row}", values)]) for row in range(200)]
        decoder.decode(rollup(*needs))
        assert decoder.remembered_bytes <= 300 * MEBIBYTE
    assert decoder._constraints.held_bytes <= 128 * MEBIBYTE
    assert len(decoder._constraints) < 600


def _in(key: str, values: list[str]) -> capacity_pb2.NodeSelectorRequirement:
    return capacity_pb2.NodeSelectorRequirement(key=key, operator=0, values=values)  # type: ignore[arg-type]


def test_an_allocation_that_fails_refuses_the_rollup(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = RollupDecoder()

    def no_memory(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as broken:
        broken.setattr("bigfleet.shard.streams.rollup_codec._matrix", no_memory)
        with pytest.raises(RollupError, match="needs more memory"):
            decoder.decode(rollup(one()))
    assert len(decoder.decode(rollup(one()))[0]) == 1


CLUSTERS, NAMES = 50, 200


def device(cluster: str, number: int) -> str:
    return f"{cluster}.example/device-{number:03}"


def odd_rows(cluster: str) -> list[NeedLine]:
    """A machine's worth of cpu, and rows that ask for two hundred devices that no other cluster knows: one alone, the
    others ten at a time."""
    tens = [{device(cluster, n): 1 for n in range(ten, ten + 10)} for ten in range(0, NAMES, 10)]
    alone = {device(cluster, 7): 1}
    return [cpu(cluster, 1), *(need(cluster, 1, cpu=1, **names) for names in (alone, *tens))]


def missing(world: World, cluster: str) -> set[str]:
    """Names of what is short in a cluster, as its needs are told."""
    unmet = [each for each in world.engine.latest.result.verdicts.unmet() if each.key.cluster == cluster]
    assert {each.reason for each in unmet} <= {UnmetReason.RESOURCE_NOT_PUBLISHED}
    return {name for each in unmet for name in each.deficit.names()}


def test_ten_thousand_names_of_fifty_clusters_refuse_nobody_and_cost_the_others_nothing() -> None:
    world = World(oracle=False, validates=False)
    world.provider.several(CLUSTERS, "i")
    clusters = [f"c{number:02}" for number in range(CLUSTERS)]
    for name in clusters:
        world.operator(name).send(*odd_rows(name))
    world.run(8)
    refused = [frame.reason for op in world.operators.values() for frame in op.of(ev.Acknowledgement) if frame.reason]
    assert refused == []
    for name in clusters:
        assert len(world.provider.configured(name)) == 1
        assert missing(world, name) >= {device(name, number) for number in range(NAMES)}
    # What a row costs: cpu, memory and whatever machines publish, and one column for all ten thousand names.
    rows = world.engine.demand.store.rows
    assert rows.unit.shape[1] <= len(world.engine.catalog.published) + 1 < 12


def test_what_was_asked_for_in_vain_is_served_once_a_machine_has_it_also_after_a_restart() -> None:
    world = World(oracle=False)
    world.provider.several(3, "i")
    for name in ("c00", "c01"):
        world.operator(name).send(*odd_rows(name))
    world.run(20)
    world.crash()
    world.start()
    for name in ("c00", "c01"):
        world.operators[name].connect()
        world.operators[name].send(*odd_rows(name))
    world.run(20)
    assert missing(world, "c01") >= {device("c01", number) for number in range(NAMES)}
    world.provider.add("rare", size={"cpu": 4000, device("c01", 7): 2})
    world.run(30)
    assert world.state_of("rare") == S.CONFIGURED and "rare" in world.provider.configured("c01")
    left = missing(world, "c01")
    assert device("c01", 7) not in left and device("c01", 8) in left


def test_a_node_report_with_very_many_names_is_refused_with_the_limit_named() -> None:
    report = shard_pb2.NodeReport(machine_id="m", allocatable={f"d{n}": "1" for n in range(limits.RESOURCES + 1)})
    assert f"at most {limits.RESOURCES} are accepted" in node_reported(1, report).error
