"""Random histories of coordinator and shards with losses and crashes: a machine never has two owners, nor none."""

from __future__ import annotations

from tests.strategies import multi_shard_world
from tests.strategies.coordinator_world import history

HISTORIES = 200


def test_no_machine_is_ever_owned_by_two_or_by_none() -> None:
    moved = 0
    for seed in range(HISTORIES):
        moved += len(history(seed).moves)
    assert moved > HISTORIES / 2, "histories in which nothing moves would prove nothing"


def test_no_machine_is_ever_acted_on_by_two_shards_or_none_with_the_real_cores_of_both() -> None:
    moved = 0
    for seed in range(HISTORIES):
        moved += len(multi_shard_world.history(seed).moves)
    assert moved > HISTORIES / 2, "histories in which nothing moves would prove nothing"
