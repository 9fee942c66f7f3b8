"""Every shipped scenario keeps its promises, its golden trace, and its bytes when inputs come in another order."""

import pytest

from bigfleet.sim import library
from bigfleet.sim.report.report import render
from bigfleet.sim.scenario.expectations import Configured
from tests.strategies.pages import assert_self_contained

SMALL = library.checked()


@pytest.mark.parametrize("name", SMALL)
def test_a_shipped_scenario_passes_and_matches_its_golden_trace(name: str) -> None:
    finished, problems = library.check(name)
    assert problems == []
    assert finished.passed
    assert_self_contained(render(finished.run, finished.summary, finished.baseline))


@pytest.mark.parametrize("name", SMALL)
def test_the_order_of_inputs_does_not_change_a_byte(name: str) -> None:
    scenario = library.find(name).with_(baseline=None, expect=())
    shuffled = library.play(scenario, shuffle=7)
    assert shuffled.run.trace.text() == library.golden_path(name).read_text(encoding="utf-8")


def test_every_golden_belongs_to_a_scenario() -> None:
    assert {path.stem for path in library.golden_path("x").parent.glob("*.jsonl")} == set(SMALL)


def test_another_seed_gives_another_history() -> None:
    scenario = library.find("cost-routing")
    one, other = (library.play(scenario.with_(seed=seed)).run.trace.text() for seed in (1, 2))
    assert one != other


def test_a_report_shows_plots_and_verdicts_without_loading_anything() -> None:
    finished = library.play(library.find("priority-inversion"))
    page = render(finished.run, finished.summary)
    assert page.count("<svg") >= 5
    assert "Passed" in page
    assert page == render(finished.run, finished.summary)


def test_a_report_says_in_sentences_what_went_wrong() -> None:
    scenario = library.find("spot-crunch")
    finished = library.play(scenario.with_(expect=(Configured(count=85), *scenario.expect)))
    page = render(finished.run, finished.summary)
    assert f"1 of {len(scenario.expect) + 1} expectations did not hold" in page
    assert "80 machines serve clusters, not 85 (configured)." in page
    assert page.count("▾ stockout spot") == page.count("<svg")
