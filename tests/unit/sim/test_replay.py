"""A CSV of jobs becomes a scenario; bad cells are named with their line."""

import time
from collections import Counter
from pathlib import Path

import pytest

from bigfleet.provider.fake.instance_types import known_instance_types
from bigfleet.sim import library
from bigfleet.sim.document.document import DocumentError
from bigfleet.sim.document.text import to_yaml
from bigfleet.sim.replay.replay import replay_csv, what_if
from bigfleet.sim.scenario.fit import misfits
from bigfleet.sim.scenario.scenario import Detail, parse_scenario
from bigfleet.sim.scenario.shapes import Colocation
from bigfleet.sim.scenario.workloads import Trace, TraceJob
from bigfleet.sim.world.meter import Meter
from bigfleet.virtual.kernel import HOUR, MINUTE, SECOND

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


def test_every_pod_of_a_history_gets_a_node_unless_the_map_asks_for_sums(tmp_path: Path) -> None:
    """Three pods of five cores need three machines of eight, although sixteen cores are enough on paper."""
    csv = "submit,run,cores,ram,gpus,tier,queue,n\n2026-01-31T08:00:00+00:00,,5,4,,silver,Team A,3\n"
    mapping = MAP.replace("m6i.4xlarge", "m6i.2xlarge")
    running = {
        said: library.play(replay_csv(*files(tmp_path, csv, mapping + said))).summary["pods"]["running"]
        for said in ("", "operator: placement\n", "operator: reference\n")
    }
    assert running == {"": 3, "operator: placement\n": 3, "operator: reference\n": 2}


def test_what_if_changes_prices_and_policy(tmp_path: Path) -> None:
    scenario = replay_csv(*files(tmp_path))
    dear = what_if(scenario, prices={"box": 10.0}, changes={"reclaim_hold": 5 * SECOND})
    assert dear.policy.reclaim_hold == 5 * SECOND
    assert library.play(dear).summary["dollars"]["total"] > library.play(scenario).summary["dollars"]["total"]
    with pytest.raises(DocumentError, match=r"give one of box, g5.xlarge/on-demand, gpu, m6i.4xlarge/on-demand"):
        what_if(scenario, prices={"boks": 1.0})


def test_an_instance_type_alone_means_what_is_paid_by_the_hour(tmp_path: Path) -> None:
    offers = "[{name: own, instance_type: m6i.large, capacity_type: bare-metal, idle: 1}, " + ", ".join(
        f"{{name: {market}, instance_type: m6i.large, capacity_type: {market}, slots: 1}}"
        for market in ("reserved", "on-demand", "spot")
    )
    fleets = MAP.partition("fleets:")[0] + f"fleets: [{{offers: {offers}]}}]\n"
    scenario = replay_csv(*files(tmp_path, mapping=fleets))

    def prices(**asked: float) -> list[float | None]:
        changed = what_if(scenario, prices={name.replace("_", "."): price for name, price in asked.items()})
        return [offer.price_per_hour for offer in changed.fleets[0].offers]

    assert prices(m6i_large=2.0) == [None, None, 2.0, 2.0]
    assert prices(**{"m6i_large/spot": 0.5}) == [None, None, None, 0.5]
    assert prices(**{"m6i_large": 2.0, "on-demand": 3.0}) == [None, None, 3.0, 2.0]


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (",2,4,", ",two,4,", "jobs.csv:2: cores is 'two'; give a number or a quantity"),
        ("2026-01-31T08:10:00+00:00", "later", "jobs.csv:3: submit is 'later'; give a number or a date"),
        ("Team A,3", "Team A,0", "jobs.csv:2: n is '0'; give a whole number of at least 1"),
        ("Team A,3", "Team A,inf", "jobs.csv:2: n is 'inf'; give a whole number of at least 1"),
        ("Team A,3", "Team A,1e9", "jobs.csv:2: n is '1e9'; give a whole number of at least 1 and at most 1,000,000"),
        ("512Mi,0,", "512Mi,1e12,", "jobs.csv:3: gpus is '1e12'; give a whole number of at least 0 and at most 10,000"),
        ("gold,", "1e12,", "jobs.csv:2: tier is '1e12'; give a whole number of 32 bits, or a name under"),
        (",30,", ",-30,", "jobs.csv:2: run is '-30'; give a number of at least 0, or a duration such as 01:30:00"),
        (",30,", ",2026-01-31,", "jobs.csv:2: run is '2026-01-31'; give a number of at least 0"),
        (
            "gold,",
            "platinum,",
            "jobs.csv:2: tier is 'platinum'; give a whole number of 32 bits, or a name under `priorities` "
            "(gold, silver)",
        ),
        (",500m,512Mi,0,", ",,,,", "jobs.csv:3: cores is ''; give a job that asks for cpu, memory or gpus"),
        ("submit,", "when,", "jobs.csv:1: has no column 'submit' for arrival; name one of its own: when, run"),
        ("ram,", "memory,", "jobs.csv:1: has no column 'ram' for memory"),
        ("Team A,3", '"Team A,3', "not CSV"),
        (
            "ram,gpus",
            "ram,cores,gpus",
            "jobs.csv:1: has 2 columns 'cores', and the map reads one; rename all but the one it means",
        ),
        ("Team A,3", "Team A", "jobs.csv:2: has 7 cells, but the header has 8 columns; give one for each, empty where"),
        ("Team A,3", "Team A,3,,x", "jobs.csv:2: has 10 cells, but the header has 8 columns; give one for each"),
    ],
)
def test_a_bad_cell_is_named_with_its_line(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    with pytest.raises(DocumentError) as caught:
        replay_csv(*files(tmp_path, CSV.replace(old, new, 1)))
    assert complaint in str(caught.value)


def test_more_pods_at_once_than_the_memory_is_for_are_refused_before_the_run(tmp_path: Path) -> None:
    head, row = CSV.splitlines()[0], "2026-01-31T{:02}:00:00+00:00,60,2,4,,gold,Team A,1000000"
    after_each_other = "\n".join([head, *(row.format(hour) for hour in range(6))])
    assert len(replay_csv(*files(tmp_path, after_each_other)).workloads[0].jobs) == 6  # type: ignore[union-attr]
    with pytest.raises(DocumentError, match=r"jobs\.csv: 6,000,000 pods would be alive at once; give .* 5,000,000"):
        replay_csv(*files(tmp_path, "\n".join([head, *[row.format(0)] * 6])))


def test_durations_may_be_written_as_batch_systems_print_them(tmp_path: Path) -> None:
    csv = CSV.replace(",30,", ",1-02:03:04,", 1).replace(",5,8,16", ",00:00:30,8,16", 1)
    [history] = replay_csv(*files(tmp_path, csv)).workloads
    assert isinstance(history, Trace)
    assert [job.duration for job in history.jobs] == [26 * HOUR + 3 * MINUTE + 4 * SECOND, None, 30 * SECOND]


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_other_delimiters_are_seen_in_the_header(tmp_path: Path, delimiter: str) -> None:
    assert replay_csv(*files(tmp_path, CSV.replace(",", delimiter))) == replay_csv(*files(tmp_path))


def test_dates_without_a_zone_mean_the_same_on_every_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    csv = CSV.replace("+00:00", "").replace("2026-01-31", "2026-03-29")  # when clocks change in Berlin
    csv = csv.replace("T08:00", "T00:30").replace("T09:00", "T04:00")
    arrivals = []
    for zone in ("UTC", "Europe/Berlin"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        [history] = replay_csv(*files(tmp_path, csv)).workloads
        assert isinstance(history, Trace)
        arrivals.append([job.arrival for job in history.jobs])
    monkeypatch.undo()
    time.tzset()
    assert arrivals[0] == arrivals[1]


def test_what_does_not_fit_the_map_is_named_with_its_line(tmp_path: Path) -> None:
    wrong = MAP + "expect: [{check: configured, offer: boks, count: 1}]\n"
    with pytest.raises(DocumentError, match=r"map.yaml:12: expect\[0\].offer is 'boks'; give one of box, gpu"):
        replay_csv(*files(tmp_path, mapping=wrong))
    with pytest.raises(DocumentError, match=r"jobs.csv: is not text"):
        (tmp_path / "jobs.csv").write_bytes(b"\xff")
        replay_csv(tmp_path / "jobs.csv", tmp_path / "map.yaml")


def test_short_histories_are_told_in_full(tmp_path: Path) -> None:
    assert replay_csv(*files(tmp_path)).trace is Detail.MACHINES
    late = CSV.replace("2026-01-31T09", "2026-02-28T09")
    assert replay_csv(*files(tmp_path, late)).trace is Detail.HOURLY


def sizes(folder: Path, head: str, cells: str, extra: str = "") -> dict[str, str]:
    """What one pod asks for when the history has these columns and the map says nothing more about units."""
    cpu, memory = head.split(",")
    mapping = MAP.replace("cpu: cores, memory: ram", f"cpu: {cpu}, memory: {memory}") + extra
    csv = f"submit,run,{head},gpus,tier,queue,n\n2026-01-31T08:00:00+00:00,30,{cells},,gold,Team A,1\n"
    scenario = replay_csv(*files(folder, csv, mapping))
    [shape] = scenario.shapes.values()
    return dict(shape.resources)


@pytest.mark.parametrize(
    ("head", "cells", "extra", "asked"),
    [
        ("cpu_milli,memory_mib", "2500,512", "", {"cpu": "2500m", "memory": "512Mi"}),
        ("cpuMillicores,memBytes", "500,1073741824", "", {"cpu": "500m", "memory": "1Gi"}),
        ("vCPUs,mem_gib", "2,4", "", {"cpu": "2", "memory": "4Gi"}),
        ("cpu,memory", "2,4", "", {"cpu": "2", "memory": "4Gi"}),
        ("cpu,mem_mb", "1500,1024", "cpu_unit: milli\nmemory_unit: MiB\n", {"cpu": "1500m", "memory": "1Gi"}),
        ("cpu_milli,mem_mb", "2,4Gi", "", {"cpu": "2m", "memory": "4Gi"}),
    ],
)
def test_the_unit_of_a_number_is_what_the_map_or_the_column_says(
    tmp_path: Path, head: str, cells: str, extra: str, asked: dict[str, str]
) -> None:
    assert sizes(tmp_path, head, cells, extra) == asked


@pytest.mark.parametrize(
    ("head", "cells", "extra", "complaint"),
    [
        (
            "cpu_milli,ram",
            "500,1",
            "cpu_unit: cores\n",
            "jobs.csv:2: columns.cpu is 'cpu_milli', which says milli, but cpu_unit is cores; give cpu_unit: milli, or",
        ),
        ("cpu,mem_mb", "1,512", "", "give memory_unit: one of bytes, KiB, MiB, GiB, MB, GB"),
        ("cpu_pct,ram", "50,1", "", "columns.cpu is 'cpu_pct', whose name leaves open what its numbers are in"),
        ("cpu,ram", "1,17179869184", "", "give memory_unit, one of bytes, KiB, MiB, GiB, MB, GB: no machine has so"),
        ("cpu,ram", "64000,1", "", "jobs.csv:2: cpu is '64000'; give cpu_unit, one of cores, milli: no machine has"),
    ],
)
def test_a_unit_that_could_be_two_things_is_refused(
    tmp_path: Path, head: str, cells: str, extra: str, complaint: str
) -> None:
    with pytest.raises(DocumentError) as caught:
        sizes(tmp_path, head, cells, extra)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_time_columns_say_their_units_too(tmp_path: Path) -> None:
    csv = "submit_ms,run_hours,cores,ram\n1000,2,1,1\n61000,0.5,1,1\n"
    mapping = (
        "columns: {arrival: submit_ms, duration: run_hours, cpu: cores, memory: ram}\n" + MAP[MAP.index("fleets:") :]
    )
    [history] = replay_csv(*files(tmp_path, csv, mapping)).workloads
    assert isinstance(history, Trace)
    assert [(job.arrival, job.duration) for job in history.jobs] == [(0, 2 * HOUR), (MINUTE, HOUR // 2)]
    for option in ("time_unit", "moment_unit"):
        with pytest.raises(DocumentError, match=rf"columns.arrival is 'submit_ms', which says ms, but {option} is h"):
            replay_csv(*files(tmp_path, csv, f"{option}: h\n" + mapping))


def test_cells_and_columns_nobody_reads_are_no_mistake(tmp_path: Path) -> None:
    csv = CSV.replace("Team A,3\n", "Team A,3,,\n").replace("Team B,\n", "Team B,\n\n")
    assert replay_csv(*files(tmp_path, csv)) == replay_csv(*files(tmp_path))
    noted = "\n".join(line + (",note,note" if line.startswith("submit") else ",x,y") for line in CSV.splitlines())
    assert replay_csv(*files(tmp_path, noted)) == replay_csv(*files(tmp_path))


def test_arrivals_are_as_far_apart_as_the_file_says_to_the_nanosecond(tmp_path: Path) -> None:
    """Two jobs an hour apart cost two hours and a bit, however their clock counts, not a thousand hours."""
    for unit, per_second in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        csv = f"arrival,cpu\n{1772438400 * per_second},1\n{1772442000 * per_second},1\n"
        assert [job.arrival for job in jobs_of(tmp_path, csv, moment_unit=unit)] == [0, HOUR]
    dust = "arrival,cpu\n1772438400.123456789,1\n1772438401.123456789,1\n"
    assert [job.arrival for job in jobs_of(tmp_path, dust)] == [0, SECOND]
    dates = "arrival,cpu\n2026-03-02T08:00:00.1,1\n2026-03-02T08:00:00.3,1\n2026-03-02T08:00:00.7,1\n"
    assert [job.arrival for job in jobs_of(tmp_path, dates)] == [0, SECOND // 5, 3 * SECOND // 5]


@pytest.mark.parametrize(
    ("csv", "changes", "complaint"),
    [
        (
            "arrival,cpu\n1772438400000,1\n",
            {},
            "jobs.csv:2: arrival is '1772438400000'; give moment_unit, one of ns, us, ms, s, m, h: in s it is",
        ),
        (
            "arrival,cpu\n1772438400,1\n1772442000000,1\n",
            {},
            "jobs.csv:3: arrival is '1772442000000'; give moment_unit, one of",
        ),
        (
            "arrival,cpu\n1772438400,1\n1772438401,1\n1772442000000,1\n",
            {"moment_unit": "s"},
            "jobs.csv:4: the arrivals of lines 2 and 4 are 56,147 years apart; give moments of one unit (`moment_unit`",
        ),
        (
            "arrival,cpu\n1772438400000,1\n1772442000,1\n",
            {"moment_unit": "ms"},
            "jobs.csv:3: the arrivals of lines 3 and 2 are 56 years apart",
        ),
        (
            "arrival,end,cpu\n1772438400000,1772442000,1\n",
            {"moment_unit": "ms"},
            "jobs.csv:2: end is '1772442000'; give a moment that is not before the row's start",
        ),
        (
            "arrival,end,cpu\n1772438400,1772442000000,1\n",
            {"moment_unit": "s"},
            "jobs.csv:2: end is '1772442000000'; give a moment within ten years of the row's start",
        ),
        (
            "arrival,duration,cpu\n1772438400,60,1\n1772442000,60,1\n",
            {"time_unit": "m"},
            "jobs.csv:2: arrival is '1772438400'; give moment_unit, one of ns, us, ms, s, m, h: in m it is after",
        ),
    ],
)
def test_moments_whose_unit_nobody_said_or_that_mix_two_are_refused(
    tmp_path: Path, csv: str, changes: dict[str, str], complaint: str
) -> None:
    with pytest.raises(DocumentError) as caught:
        jobs_of(tmp_path, csv, **changes)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_moments_and_durations_have_units_of_their_own(tmp_path: Path) -> None:
    csv = "arrival,duration,cpu\n1772438400,60,1\n1772442000,90,1\n"
    jobs = jobs_of(tmp_path, csv, time_unit="m", moment_unit="s")
    assert [(job.arrival, job.duration) for job in jobs] == [(0, HOUR), (HOUR, 90 * MINUTE)]
    both = jobs_of(tmp_path, "arrival,duration,cpu\n5,60,1\n65,90,1\n", time_unit="m")
    assert [(job.arrival, job.duration) for job in both] == [(0, HOUR), (HOUR, 90 * MINUTE)]


def jobs_of(folder: Path, csv: str, **changes: str) -> list[TraceJob]:
    """The jobs of a history under columns of their default names, and a map that says only this."""
    extra = "".join(f"{key}: {value}\n" for key, value in changes.items())
    fleets = "fleets: [{offers: [{name: box, instance_type: m6i.4xlarge, slots: 9, zones: [zone-a, zone-b]}]}]\n"
    [history] = replay_csv(*files(folder, csv, extra + fleets)).workloads
    assert isinstance(history, Trace)
    return list(history.jobs)


def test_an_end_is_as_good_as_a_duration_and_time_in_a_queue_is_no_run_time(tmp_path: Path) -> None:
    csv = "arrival,start,end,cpu\n0,100,160,1\n10,,70,1\n20,30,,1\n"
    assert [job.duration for job in jobs_of(tmp_path, csv)] == [60 * SECOND, 60 * SECOND, None]
    dates = "arrival,done,cpu\n2026-01-31T08:00:00,2026-01-31 09:30,1\n"
    assert [job.duration for job in jobs_of(tmp_path, dates, columns="{end: done}")] == [90 * MINUTE]
    with pytest.raises(DocumentError, match=r"jobs.csv:2: end is '50'; give a moment that is not before the row's"):
        jobs_of(tmp_path, "arrival,start,end,cpu\n0,100,50,1\n")
    with pytest.raises(DocumentError, match=r"columns: names both duration \(run\) and end \(done\); give one of"):
        jobs_of(tmp_path, "arrival,run,done,cpu\n0,1,1,1\n", columns="{end: done, duration: run}")


def test_rows_of_one_gang_are_one_job_in_one_domain(tmp_path: Path) -> None:
    csv = (
        "arrival,duration,cpu,gang,cluster\n0,60,4,train,a\n5,90,4,train,a\n0,60,4,train,b\n0,60,8,train,a\n9,1,4,,a\n"
    )
    jobs = jobs_of(tmp_path, csv, gang_within="rack")
    assert [(job.cluster, job.pods, job.duration) for job in jobs] == [
        ("a", 2, 95 * SECOND),
        ("b", 1, 60 * SECOND),
        ("a", 1, 60 * SECOND),
        ("a", 1, SECOND),
    ]
    shapes = replay_csv(tmp_path / "jobs.csv", tmp_path / "map.yaml").shapes
    assert [shapes[job.shape].same for job in jobs] == [Colocation.RACK] * 3 + [Colocation.NONE]


def test_affinity_columns_keep_pods_where_their_cells_say(tmp_path: Path) -> None:
    csv = "arrival,cpu,where\n0,1,zone-b\n0,1,\n0,1,zone-a|zone-b\n"
    affinity = "{where: topology.kubernetes.io/zone}"
    jobs = jobs_of(tmp_path, csv, affinity=affinity)
    scenario = replay_csv(tmp_path / "jobs.csv", tmp_path / "map.yaml")
    asked = [[each.values for each in scenario.shapes[job.shape].requirements] for job in jobs]
    assert asked == [[("zone-b",)], [], [("zone-a", "zone-b")]]
    run = library.play(scenario).run
    [first, *_] = [podset for podset in run.clusters["cluster"].podsets.values() if podset.name == "history-000000"]
    assert [node.attributes["topology.kubernetes.io/zone"] for node in first.bound] == ["zone-b"]
    with pytest.raises(DocumentError, match="has no column 'zone' for affinity to rack; name one of its own: arrival"):
        jobs_of(tmp_path, csv, affinity="{zone: rack}")


def test_the_shipped_table_can_be_all_there_is_to_buy(tmp_path: Path) -> None:
    head = MAP.partition("fleets:")[0]
    scenario = replay_csv(*files(tmp_path, mapping=head + "fleets: [{pace: instant, offers: catalogue}]\n"))
    offers = scenario.fleets[0].offers
    assert {offer.instance_type for offer in offers} == set(known_instance_types())
    assert {str(offer.capacity_type) for offer in offers} == {"on-demand", "spot"}
    assert library.play(scenario).summary["pods"]["started"] == 5
    assert parse_scenario(to_yaml(scenario), "again.yaml") == scenario
    narrow = "fleets: [{offers: catalogue, catalogue: {types: [m6i.large], markets: [spot], slots: 3}}]\n"
    [only] = replay_csv(*files(tmp_path, mapping=head + narrow)).fleets[0].offers
    assert (only.name, only.slots) == ("m6i-large-spot", 3)
    with pytest.raises(DocumentError, match=r"types names 'm6i.larg', which is not in the table"):
        replay_csv(*files(tmp_path, mapping=head + narrow.replace("m6i.large", "m6i.larg")))


def test_pods_that_no_offer_can_ever_run_are_told_before_the_run(tmp_path: Path) -> None:
    assert misfits(replay_csv(*files(tmp_path))) == []
    csv = "arrival,cpu,memory,pods,gang,where\n0,64,4,3,,\n0,1,4,1,,zone-z\n0,1,4,2,ring,\n0,1,4,1,,\n"
    jobs_of(tmp_path, csv, affinity="{where: topology.kubernetes.io/zone}", gang_within="rack")
    told = misfits(replay_csv(tmp_path / "jobs.csv", tmp_path / "map.yaml"))
    assert len(told) == 3, "the last row fits"
    assert told[0].startswith("3 pods of 64 vCPU, 4 GiB (shape ")
    assert told[0].endswith("fit no offer: the most any they may use has is 16 vCPU, 64 GiB")
    assert all(sentence.endswith("fit no offer: none has the labels they ask for") for sentence in told[1:])


def test_months_of_cycles_take_no_more_memory_than_days(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bigfleet.sim.world.meter.SAMPLES_KEPT", 500)
    monkeypatch.setattr("bigfleet.sim.world.meter.ENTRIES_KEPT", 500)
    asked = 15_000 * MINUTE
    meter, pods = Meter(("cpu",), moments=(0, asked)), Counter({"batch": 3})
    for number in range(20_000):
        at = number * MINUTE
        meter.advance(at)
        meter.actions("Provision", f"c{number % 3}", 1)
        meter.shortfalls(((100, 1 + number % 5),))
        meter.pods_bound("c0", "batch", at % (7919 * SECOND), 1)
        if number % meter.stride == 0:
            meter.sample(pods, Counter({"batch": number % 4}), 0.0)
    meter.sample(pods, pods, 0.0)
    assert len(meter.samples) <= 500
    assert max(len(meter.acted), len(meter.shortfall_steps)) <= 1000
    assert meter.acted_since("any", 0, "") == sum(s.actions["Provision"] for s in meter.samples) == 20_000
    assert meter.acted_since("any", asked, "c0") == sum(number % 3 == 0 for number in range(15_000, 20_000))
    assert meter.shortfall_range(asked, 0) == (1, 5)
    waits = meter.waited("batch", 50)
    assert waits is not None
    assert 3900 < waits < 4050


def test_jobs_longer_than_the_replay_are_told_and_played_to_their_end_with_a_longer_tail(tmp_path: Path) -> None:
    """A job of two hours and one of four with three pods; the replay ends an hour after the second came."""
    csv = """\
submit,run,cores,ram,gpus,tier,queue,n
2026-01-31T08:00:00+00:00,120,2,4,,silver,a,1
2026-01-31T08:00:00+00:00,240,2,4,,silver,a,3
2026-01-31T08:00:00+00:00,5,2,4,,silver,a,1
"""
    cut = library.play(replay_csv(*files(tmp_path, csv))).summary["unfinished"]
    assert cut["jobs"] == 2
    assert 3 * 3600 <= cut["longest_left_seconds"] < 3 * 3600 + 300
    assert 10 <= cut["pod_hours_left"] < 10.3
    whole = library.play(replay_csv(*files(tmp_path, csv, f"tail: 4h5m\n{MAP}"))).summary
    assert whole["unfinished"] == {"jobs": 0, "longest_left_seconds": 0.0, "pod_hours_left": 0.0}


def test_a_gang_name_used_again_night_after_night_is_a_gang_of_its_own_each_night(tmp_path: Path) -> None:
    nights = "".join(f"{night * 24},1,4,nightly\n" * 4 for night in range(7))
    jobs = jobs_of(tmp_path, f"arrival,duration,cpu,gang\n{nights}", gang_within="rack", time_unit="h")
    assert [job.pods for job in jobs] == [4] * 7
    assert [job.arrival for job in jobs] == [night * 24 * HOUR for night in range(7)]
    assert {job.duration for job in jobs} == {HOUR}


def test_gangs_of_one_name_that_overlap_or_never_end_stay_one(tmp_path: Path) -> None:
    (late,) = jobs_of(tmp_path, "arrival,duration,cpu,gang\n59,60,4,g\n0,60,4,g\n", gang_within="rack")
    assert (late.pods, late.arrival, late.duration) == (2, 0, 119 * SECOND)
    (ever,) = jobs_of(tmp_path, "arrival,duration,cpu,gang\n0,,4,g\n500,60,4,g\n", gang_within="rack")
    assert (ever.pods, ever.duration) == (2, None)


def test_a_map_can_say_what_nodes_have_less_and_that_jobs_go_on_where_they_were(tmp_path: Path) -> None:
    """Two pods of four cores fill a machine of eight; beside a DaemonSet each needs one of its own."""
    csv = "submit,run,cores,ram,gpus,tier,queue,n\n2026-01-31T08:00:00+00:00,120,4,8,,silver,a,2\n"
    mapping = MAP.replace("m6i.4xlarge", "m6i.2xlarge")
    plain = library.play(replay_csv(*files(tmp_path, csv, mapping))).summary
    beside = replay_csv(*files(tmp_path, csv, f"overhead: {{cpu: 500m, memory: 1Gi}}\ncheckpoints: true\n{mapping}"))
    assert plain["serving_machines"]["max"] == 1
    assert library.play(beside).summary["serving_machines"]["max"] == 2
    assert isinstance(beside.workloads[0], Trace) and beside.workloads[0].checkpoints


@pytest.mark.parametrize("pods", ["2.5", "0.5"])
def test_half_a_pod_is_refused(tmp_path: Path, pods: str) -> None:
    with pytest.raises(DocumentError, match=rf"jobs.csv:2: n is '{pods}'"):
        replay_csv(*files(tmp_path, f"submit,run,cores,ram,gpus,tier,queue,n\n0,1,2,4,,silver,a,{pods}\n"))


def test_a_packed_file_is_told_to_be_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv.gz"
    path.write_bytes(b"\x1f\x8b\x08\x00\x00\x00\x00\x00")
    with pytest.raises(DocumentError, match="unpack it first"):
        replay_csv(path, files(tmp_path)[1])
