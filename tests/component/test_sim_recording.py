"""A recording is decided again the same way, and becomes a scenario one can change."""

from collections import Counter
from pathlib import Path

import pytest

from bigfleet.engine import Engine
from bigfleet.shard.recording.format import RecordingError
from bigfleet.sim import library
from bigfleet.sim.document.document import DocumentError, Nanoseconds
from bigfleet.sim.replay.recording import decide_again, scenario_of
from bigfleet.sim.replay.replay import what_if
from bigfleet.sim.scenario.scenario import PolicySettings, Preset, ShardSettings
from bigfleet.sim.scenario.shard_settings import shard_config
from bigfleet.virtual.kernel import HOUR, MINUTE, SECOND


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, library.Finished]:
    path = tmp_path_factory.mktemp("recording") / "shard.rec"
    return path, library.play(library.find("idle-release"), record=path)


def test_deciding_again_gives_the_same_actions(recorded: tuple[Path, library.Finished]) -> None:
    path, finished = recorded
    again = decide_again(path, Engine)
    acted = Counter[str]()
    for each in finished.run.meter.acted:
        acted[each.kind] += each.count
    assert again.steps == finished.run.cycles
    assert again.actions == dict(sorted(acted.items()))
    assert again == decide_again(path, Engine)


def test_other_prices_are_another_decision(recorded: tuple[Path, library.Finished]) -> None:
    path, _ = recorded
    assert decide_again(path, Engine, prices={"m6i.xlarge": 9.0}).dollars_per_hour_bought == pytest.approx(
        9.0 * decide_again(path, Engine).actions["Provision"]
    )


def test_a_recording_becomes_a_scenario_in_closed_loop(recorded: tuple[Path, library.Finished]) -> None:
    path, finished = recorded
    scenario = scenario_of(path)
    again = library.play(scenario)
    assert again.summary["machines"] == finished.summary["machines"]
    assert again.summary["pods"]["running"] == 10
    assert again.summary["dollars"]["total"] == pytest.approx(finished.summary["dollars"]["total"], rel=0.1)
    rented = [offer for fleet in scenario.fleets for offer in fleet.offers if offer.slots]
    dear = library.play(what_if(scenario, prices={rented[0].name: 1.92}))
    assert dear.summary["dollars"]["total"] == pytest.approx(10 * again.summary["dollars"]["total"], rel=0.01)


def test_another_policy_is_another_decision(recorded: tuple[Path, library.Finished]) -> None:
    path, _ = recorded
    assert decide_again(path, Engine, policy={"preset": Preset.PRODUCTION}) == decide_again(path, Engine)
    held = decide_again(path, Engine, policy={"reclaim_hold": 24 * HOUR})
    assert held.actions["Provision"] == decide_again(path, Engine).actions["Provision"]
    assert "Reclaim" in decide_again(path, Engine).actions
    assert "Reclaim" not in held.actions


def test_a_recording_is_replayed_under_the_policy_it_was_made_with(tmp_path: Path) -> None:
    mine = PolicySettings(
        reclaim_hold=Nanoseconds(7 * SECOND), idle_hold_spot=Nanoseconds(3 * MINUTE), guard=False, max_actions=5
    )
    scenario = library.find("idle-release").with_(policy=mine, shard=ShardSettings(cycle=Nanoseconds(20 * SECOND)))
    library.play(scenario, record=tmp_path / "shard.rec")
    again = scenario_of(tmp_path / "shard.rec")
    assert again.shard.cycle == 20 * SECOND
    assert shard_config(again, "shard", ["sim"]) == shard_config(scenario, "shard", ["sim"])


def test_offers_of_a_recording_are_named_after_what_they_are(recorded: tuple[Path, library.Finished]) -> None:
    names = [offer.name for fleet in scenario_of(recorded[0]).fleets for offer in fleet.offers]
    assert names == ["m6i-xlarge-bare-metal-zone-a", "m6i-xlarge-on-demand-zone-a"]


def test_a_damaged_recording_is_refused_and_a_torn_one_ends_early(
    recorded: tuple[Path, library.Finished], tmp_path: Path
) -> None:
    whole = recorded[0].read_bytes()
    (tmp_path / "torn").write_bytes(whole[: len(whole) // 2])
    assert 0 < decide_again(tmp_path / "torn", Engine).steps < decide_again(recorded[0], Engine).steps
    (tmp_path / "damaged").write_bytes(whole[: len(whole) // 2] + bytes(255 for _ in range(len(whole) // 2)))
    with pytest.raises(DocumentError, match=r"damaged: is damaged after step \d+"):
        decide_again(tmp_path / "damaged", Engine)


def test_a_file_that_is_no_recording_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"nonsense")
    with pytest.raises(RecordingError, match="is not a recording"):
        decide_again(tmp_path / "x", Engine)
