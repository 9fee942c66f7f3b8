"""The pretend fleet of a scale test: ordinals, shares, racks, misfortune, and what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bigfleet.provider.fake.commands import ShrinkQuota
from bigfleet.provider.fake.offerings import RACK_LABEL
from bigfleet.shard.contract.config import ConfigError
from bigfleet.shard.rehearsal.seeding import (
    CREATE_LATENCY,
    Archetype,
    owned_clusters,
    read_archetypes,
    seeded_catalogue,
    shard_ordinal,
    shares,
)
from bigfleet.shard.settings import ProcessSettings, settings_from


def _settings(**given: Any) -> ProcessSettings:
    return settings_from({"fake-provider": True, **{name.replace("_", "-"): value for name, value in given.items()}})[0]


def test_the_ordinal_is_the_number_after_the_last_dash() -> None:
    assert [shard_ordinal(text) for text in ("x-2", "shard-0", "eu-west-17")] == [2, 0, 17]
    for bad in ("x", "x-", "x-abc", ""):
        with pytest.raises(ConfigError, match="must end in -NUMBER"):
            shard_ordinal(bad)


def test_a_shard_owns_every_nth_cluster() -> None:
    asked = _settings(seed_configured_per_cluster=3, seed_cluster_total=7, seed_cluster_stride=3)
    assert owned_clusters(asked, "shard-1") == ["kwok-cluster-1", "kwok-cluster-4"]
    assert owned_clusters(_settings(), "no number") == []
    bound = [each for each in seeded_catalogue("fake", asked, "shard-1").offerings if each.name == "bound"]
    assert [(each.count, each.hosts) for each in bound] == [(6, 6)]


def test_shares_add_up_whatever_the_weights() -> None:
    kinds = tuple(Archetype(name, weight) for name, weight in (("a", 1.0), ("b", 1.0), ("c", 5.0)))
    for total in (0, 1, 10, 99):
        assert sum(shares(total, kinds)) == total
    assert shares(70, kinds) == [10, 10, 50]


def test_archetypes_seed_in_turn_and_gangs_by_blocks_of_a_rack(tmp_path: Path) -> None:
    path = tmp_path / "archetypes.yaml"
    path.write_text(
        "seed:\n"
        "- {name: web, weight: 3, instanceTypes: [m6i.xlarge], zones: [z-1, z-2], resources: {cpu: 4, memory: 16Gi}}\n"
        "- {name: train, sameRack: true, groupSizeRange: [2, 4], resources: {nvidia.com/gpu: 8}}\n"
        "demand: []\n"
    )
    web, train = seeded_catalogue(
        "fake", _settings(seed_machines=40, archetypes=str(path), seed_density_multiplier=2), "shard-0"
    ).offerings
    assert (web.name, web.count, web.zones, web.allocatable) == (
        "idle-web",
        30,
        ("z-1", "z-2"),
        {"cpu": "8", "memory": "32Gi"},
    )
    racks = [each.labels[RACK_LABEL] for each in train.instances("fake")]
    assert racks == [f"zone-a-rack-{number // 4}" for number in range(10)]
    assert Counter(each.zone for each in web.instances("fake")) == {"z-1": 15, "z-2": 15}
    assert read_archetypes(path)[1].block == 4


def test_a_file_that_is_no_list_of_archetypes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "archetypes.yaml"
    for text in ("", "seed: 3", "- {weight: 1}", "- {name: a, weight: 0}", "- {name: a, resources: {cpu: many}}"):
        path.write_text(text)
        with pytest.raises(ConfigError, match="archetypes"):
            read_archetypes(path)


def test_failures_shedding_and_create_latency_become_the_fakes_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _settings(
        seed_spot=10, failure_rate_per_sec=0.5, speculative_shed_at_seconds=60, speculative_shed_multiplier=0.25
    )
    monkeypatch.setenv(CREATE_LATENCY, "3s")
    made = seeded_catalogue("fake", asked, "shard-0")
    assert (made.misfortune.losses_per_hour, made.misfortune.broken_share) == (1800.0, 1.0)
    (shed,) = made.schedule
    assert isinstance(shed.command, ShrinkQuota) and (shed.at_seconds, shed.command.choice.fraction) == (60.0, 0.75)
    assert made.latencies.create == made.latencies.create.fixed(3_000_000_000)
    monkeypatch.setenv(CREATE_LATENCY, "soon")
    assert seeded_catalogue("fake", asked, "shard-0").latencies != made.latencies
    assert not seeded_catalogue("fake", _settings(speculative_shed_at_seconds=60), "shard-0").schedule


def test_pretending_beside_a_real_provider_is_a_start_up_error() -> None:
    for name in ("seed-configured-per-cluster", "failure-rate-per-sec", "speculative-shed-at-seconds", "seed-machines"):
        with pytest.raises(ConfigError, match=name):
            settings_from({"provider-addr": "127.0.0.1:1", name: 1})
