"""A report answers in sentences: did it pass, what did it cost, who waited, what was interrupted."""

from typing import Any

from bigfleet.sim.report.answers import answers
from bigfleet.sim.world.meter import Sample

SUMMARY: dict[str, Any] = {
    "passed": True,
    "failures": [],
    "expectations": 2,
    "simulated_seconds": 5400.0,
    "dollars": {"total": 12.5, "per_hour": 8.3333, "by_market": {"on-demand": 10.0, "spot": 2.5}},
    "utilisation": {"cpu": 0.914},
    "serving_machines": {"p50": 1, "p90": 4, "p99": 9, "max": 10},
    "pods": {"live": 10, "running": 10, "started": 12},
    "time_to_capacity_seconds": {"batch": {"pods": 12, "p50": 0.0, "p90": 30.0, "p99": 86.0, "max": 90.5}},
    "shortfalls": 0,
    "preemptions": 0,
    "interruptions": {"pods": {}, "by_class": {}, "machines_lost": 0},
}


def sample(minute: int, live: int, running: int) -> Sample:
    return Sample(minute * 60_000_000_000, {}, {}, {"batch": live}, {"batch": running}, 0, 0.0, {})


def told(samples: list[Sample] | None = None, **changes: Any) -> dict[str, tuple[str, list[str], bool]]:
    found = answers({**SUMMARY, **changes}, samples or [])
    return {each.question.split()[0]: (each.glance, list(each.sentences), each.bad) for each in found}


def test_a_good_run() -> None:
    found = told()
    assert found["Did"] == ("Passed", ["All 2 expectations held."], False)
    cost = [
        "In 1h 30m, $8.33 an hour: $10.00 on-demand, $2.50 spot.",
        "Capacity used while serving: cpu 91%.",
        "Half of the time at most 1 machine served, 99% of it at most 9, never more than 10.",
    ]
    assert found["What"] == ("Nothing", ["No running pod was thrown out."], False)
    assert answers(SUMMARY, [])[1].glance == "$12.50"
    assert answers(SUMMARY, [])[1].sentences == cost
    assert found["Who"] == (
        "All ran within 1m 30s",
        ["Batch pods: half ran at once, 99% within 1m 26s.", "All 10 pods run at the end."],
        False,
    )


def test_failures_are_sentences() -> None:
    glance, sentences, bad = told(passed=False, failures=["configured: 60 machines serve a, not 65"])["Did"]
    assert (glance, bad) == ("Failed", True)
    assert sentences == ["1 of 2 expectations did not hold:", "60 machines serve a, not 65 (configured)."]


def test_a_run_of_which_nothing_is_expected() -> None:
    assert told(expectations=0)["Did"][1] == ["Nothing was expected of it; it ran to its end."]
    assert told(expectations=1)["Did"][1] == ["Its one expectation held."]


def test_who_waits_after_the_start_is_told_apart_from_the_start() -> None:
    samples = [sample(0, 50, 0), sample(1, 50, 50), sample(2, 50, 46), sample(3, 50, 50)]
    assert "After the start at most 4 pods waited at a time (at 2m)." in told(samples)["Who"][1]
    assert "At most 50 pods waited at a time (at 0)." in told(samples[:1])["Who"][1]


def test_pods_that_never_ran_come_first() -> None:
    glance, sentences, bad = told(pods={"live": 10, "running": 9, "started": 9}, shortfalls=1)["Who"]
    assert (glance, bad) == ("1 pod to the end", True)
    assert sentences[-1] == "1 of 10 pods still wait at the end, 1 row of demand short."


def test_interruptions_name_cause_and_class() -> None:
    thrown = {"pods": {"loss": 1200, "preemption": 2}, "by_class": {"batch": 1202}, "machines_lost": 1}
    glance, sentences, _ = told(interruptions=thrown, preemptions=2)["What"]
    assert glance == "1,202 pods"
    assert sentences == [
        "1,200 lost with their host, 2 put out for more important ones.",
        "By class: 1,202 batch.",
        "1 serving machine failed or vanished.",
        "The shard preempted 2 machines.",
    ]


def test_a_baseline_is_compared_in_both_directions() -> None:
    base: dict[str, Any] = {"sharding": "per-cluster", "dollars": 25.0, "saved": 12.5, "saved_share": 0.5}
    base |= {"clusters": 3, "time_to_capacity_p99": {"batch": 95.0}}
    _, cost, waits, _ = answers({**SUMMARY, "baseline": base}, [])
    assert waits.sentences[-1] == "With each cluster on machines of its own 99% run: batch within 1m 35s."
    assert (
        cost.sentences[-1]
        == "$12.50 (50%) less than BigFleet with each cluster on machines of its own, which costs $25.00."
    )
    worse = {**base, "dollars": 10.0, "saved": -2.5, "saved_share": -0.25}
    assert "$2.50 (25%) more than" in answers({**SUMMARY, "baseline": worse}, [])[1].sentences[-1]


def test_jobs_that_the_end_cut_off_are_told_beside_the_dollars() -> None:
    left = {"jobs": 2, "longest_left_seconds": 169200.0, "pod_hours_left": 55.9}
    cost = answers({**SUMMARY, "unfinished": left}, [])[1].sentences
    assert cost[1] == (
        "Not in it: 2 jobs had not ended when the run did, with up to 1d 23h left, 55.9 hours of their pods in all."
    )
    none = {"jobs": 0, "longest_left_seconds": 0.0, "pod_hours_left": 0.0}
    assert not any("Not in it" in each for each in answers({**SUMMARY, "unfinished": none}, [])[1].sentences)


def test_a_budget_of_moves_that_is_empty_is_told_with_what_it_means() -> None:
    told = {"earned": 14, "spent": 13, "left": {"prod": 0, "web": 1}}
    cost = answers({**SUMMARY, "evictions": told}, [])[1].sentences
    assert cost[-2:] == [
        "Moves of pods to save money: 14 earned, 13 spent, 1 left.",
        "None left in prod: nodes in use there are closed at most, and not emptied.",
    ]
    rich = {"earned": 14, "spent": 13, "left": {"web": 1}}
    assert answers({**SUMMARY, "evictions": rich}, [])[1].sentences[-1] == cost[-2]


def test_jobs_that_began_anew_are_told_with_what_that_took() -> None:
    thrown = {"pods": {"reclaim": 3}, "by_class": {"batch": 3}, "machines_lost": 0}
    thrown |= {"jobs_begun_anew": 3, "pod_hours_run_again": 4.25}
    said = told(interruptions=thrown)["What"][1]
    assert said[-1] == "3 times a job lost a pod and began anew: 4.2 hours of their pods were run again."


def test_a_single_cluster_is_told_that_there_was_nothing_to_compare() -> None:
    base: dict[str, Any] = {"sharding": "per-cluster", "clusters": 1, "dollars": 25.0, "saved": 0.0, "saved_share": 0.0}
    base["time_to_capacity_p99"] = {"batch": 95.0}
    said = [each for answer in answers({**SUMMARY, "baseline": base}, []) for each in answer.sentences]
    assert any("no comparison with another autoscaler" in each for each in said)
    assert not [each for each in said if "less than" in each or "machines of its own" in each]


def test_a_run_on_owned_machines_costs_nothing() -> None:
    free = answers({**SUMMARY, "dollars": {"total": 0.0, "per_hour": 0.0, "by_market": {}}}, [])[1]
    assert (free.glance, free.sentences[0]) == (
        "$0.00",
        "In 1h 30m, $0.00 an hour: no machine that was used has a price.",
    )
