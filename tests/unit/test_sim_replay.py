"""A CSV of jobs becomes a scenario; bad cells are named with their line."""

from pathlib import Path

import pytest

from bigfleet.sim import library
from bigfleet.sim.document import DocumentError
from bigfleet.sim.kernel import HOUR, MINUTE, SECOND
from bigfleet.sim.replay import replay_csv, what_if
from bigfleet.sim.workloads import Trace

CSV = """\
submit,run,cores,ram,gpus,tier,queue,n
2026-01-31T08:00:00+00:00,30,2,4,,gold,Team A,3
2026-01-31T08:10:00+00:00,,500m,512Mi,0,,Team B,
2026-01-31T09:00:00+00:00,5,8,16,1,silver,Team A,1
"""
MAP = """\
name: history
columns: {arrival: submit, duration: run, cpu: cores, memory: ram, priority: tier, cluster: queue, pods: n}
time_unit: m
priorities:
  gold: {priority: 1000000, interruption_penalty: pinned}
  silver: {priority: 1000, interruption_penalty: 64}
fleets:
  - pace: instant
    offers:
      - {name: box, instance_type: m6i.4xlarge, slots: 10}
      - {name: gpu, instance_type: g5.xlarge, slots: 4, resources: {cpu: 16, memory: 64Gi, nvidia.com/gpu: 1}}
"""


def files(folder: Path, csv: str = CSV, mapping: str = MAP) -> tuple[Path, Path]:
    (folder / "jobs.csv").write_text(csv)
    (folder / "map.yaml").write_text(mapping)
    return folder / "jobs.csv", folder / "map.yaml"


def test_rows_become_jobs_on_a_clock_that_starts_with_the_first(tmp_path: Path) -> None:
    scenario = replay_csv(*files(tmp_path))
    [history] = scenario.workloads
    assert isinstance(history, Trace)
    assert [job.arrival for job in history.jobs] == [0, 10 * MINUTE, HOUR]
    assert [job.duration for job in history.jobs] == [30 * MINUTE, None, 5 * MINUTE]
    assert [job.pods for job in history.jobs] == [3, 1, 1]
    assert scenario.cluster_names() == ["team-a", "team-b"]
    shapes = [scenario.shapes[job.shape] for job in history.jobs]
    assert [shape.priority for shape in shapes] == [1_000_000, 0, 1000]
    assert dict(shapes[1].resources) == {"cpu": "500m", "memory": "512Mi"}
    assert dict(shapes[2].resources)["nvidia.com/gpu"] == "1"


def test_the_replay_runs_and_costs_something(tmp_path: Path) -> None:
    finished = library.play(replay_csv(*files(tmp_path)))
    assert finished.summary["pods"]["started"] == 5
    assert finished.summary["pods"]["running"] == 1
    assert finished.summary["dollars"]["total"] > 0


def test_what_if_changes_prices_and_policy(tmp_path: Path) -> None:
    scenario = replay_csv(*files(tmp_path))
    dear = what_if(scenario, prices={"box": 10.0}, changes={"reclaim_hold": 5 * SECOND})
    assert dear.policy.reclaim_hold == 5 * SECOND
    assert library.play(dear).summary["dollars"]["total"] > library.play(scenario).summary["dollars"]["total"]
    with pytest.raises(DocumentError, match="known offers are box, gpu"):
        what_if(scenario, prices={"boks": 1.0})


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (",2,4,", ",two,4,", "jobs.csv:2: cores is 'two'; give a number or a quantity"),
        ("2026-01-31T08:10:00+00:00", "later", "jobs.csv:3: submit is 'later'; give a number or a date"),
        ("Team A,3", "Team A,-3", "jobs.csv:2: n is '-3'; give a number of at least 0"),
        ("gold,", "platinum,", "jobs.csv:2: tier is 'platinum'; give a whole number"),
        (",500m,512Mi,0,", ",,,,", "jobs.csv:3: cores is ''; give a job that asks for cpu, memory or gpus"),
        ("submit,", "when,", "jobs.csv:1: has no column 'submit'"),
    ],
)
def test_a_bad_cell_is_named_with_its_line(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    with pytest.raises(DocumentError) as caught:
        replay_csv(*files(tmp_path, CSV.replace(old, new, 1)))
    assert complaint in str(caught.value)
