"""One cluster's roll-up cannot take what belongs to others: limits with names, bounded memory, nobody else notices."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from bigfleet.shard.contract import events as ev
from bigfleet.shard.contract import limits
from bigfleet.shard.streams.rollup_codec import RollupDecoder, RollupError
from bigfleet.wire import capacity_pb2
from tests.strategies.builders import need
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
    "names in all rows": (lambda: rollup(*(named(1, f"d{n}") for n in range(100))), limits.RESOURCES),
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


def test_names_of_many_clusters_are_limited_together_and_clusters_that_were_there_first_notice_nothing() -> None:
    world = World()
    world.provider.several(2, "i")
    first = world.operator("first")
    first.send(cpu("first", 1))
    world.run(5)
    for number in range(8):
        names = {f"d{number}-{n}": 1 for n in range(60)}
        world.operator(f"greedy-{number}").send(need(f"greedy-{number}", 1, **names))
        world.run(2)
    rejected = [frame for op in world.operators.values() for frame in op.of(ev.Acknowledgement) if frame.reason]
    assert any(f"at most {limits.RESOURCES_OF_ALL} are accepted" in frame.reason for frame in rejected)
    assert world.provider.configured("first") and world.state_of("i0") == S.CONFIGURED
    first.send(cpu("first", 2))
    world.run(5)
    assert len(world.provider.configured("first")) == 2
