"""Scenario files are read strictly: every complaint has a file, a line and what would be accepted."""

import json

import jsonschema
import pytest
import yaml

from bigfleet.cli.faux.scenarios import Schema, published_schema
from bigfleet.duration import spelled
from bigfleet.sim import library
from bigfleet.sim.document.document import DocumentError
from bigfleet.sim.document.text import plain, to_yaml
from bigfleet.sim.scenario.scenario import load_scenario, parse_scenario, shipped_file

GOOD = """\
name: small
description: Two machines.
duration: 5m
shapes:
  web: {resources: {cpu: 1}}
fleets:
  - offers:
      - {name: metal, instance_type: box, capacity_type: bare-metal, idle: 2, resources: {cpu: 4}}
clusters: [{name: web}]
workloads:
  - {kind: deployment, name: web, shape: web, replicas: 3}
steps:
  - {at: 1m, do: scale, workload: web, replicas: 5}
expect:
  - {check: running, pods: 5}
"""


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("duration: 5m", "duration: soon", "small.yaml:3: duration is 'soon'; give a duration such as 250ms, 40s"),
        ("duration: 5m", "lasts: 5m", "small.yaml:3: the document has an unknown key 'lasts'; known are name"),
        (
            "replicas: 3",
            "replicas: -3",
            "small.yaml:11: workloads[0].replicas is '-3'; give a whole number of at least 0",
        ),
        ("shape: web", "shape: wob", "small.yaml:11: workloads[0].shape is 'wob'; give one of web"),
        ("do: scale", "do: scael", "small.yaml:13: steps[0].do is 'scael'; give one of break, empty-roll-up"),
        (
            "{cpu: 4}",
            "{cpu: four}",
            "small.yaml:8: fleets[0].offers[0].resources.cpu is 'four'; give a Kubernetes quantity",
        ),
        (
            "capacity_type: bare-metal",
            "capacity_type: gold",
            "small.yaml:8: fleets[0].offers[0].capacity_type is 'gold'",
        ),
        ("{cpu: 1}}", "{cpu: 1}, same: desk}", "small.yaml:5: shapes.web.same is 'desk'; give one of none, rack, zone"),
        ("name: small\n", "", "small.yaml:1: the document lacks 'name'; give the scenario's name"),
        ("idle: 2, ", "", "small.yaml:8: fleets[0].offers[0]: the offer has no machine; give slots, idle"),
        (
            "capacity_type: bare-metal, idle: 2",
            "capacity_type: spot, slots: 2",
            "small.yaml:8: fleets[0].offers[0]: offer 'metal' has no price_per_hour and 'box' is not in the table",
        ),
        (
            ", resources: {cpu: 4}",
            "",
            "small.yaml:8: fleets[0].offers[0]: offer 'metal' has no resources and 'box' is not in the table; give its",
        ),
        ("at: 1m", "at: 1h", "small.yaml:13: steps[0].at is 1h, after the end of the run; give at most 5m"),
        ("workload: web", "workload: wob", "small.yaml:13: steps[0].workload is 'wob'; give one of web"),
        (
            "replicas: 3}",
            "replicas: 3}\n  - {kind: deployment, name: web, shape: web, replicas: 1}",
            "small.yaml:12: workloads[1].name is 'web' a second time",
        ),
        (
            "do: scale, workload: web, replicas: 5",
            "do: zone-loss, for: 1m, zone: z",
            "steps[0].zone is 'z'; give one of",
        ),
        ("do: scale, workload: web, replicas: 5", "do: fail-next, transition: craete", "give one of create, configure"),
        (
            "do: scale, workload: web, replicas: 5",
            "do: rails",
            "small.yaml:13: steps[0]: changes nothing; give paused or",
        ),
        (
            "check: running, pods: 5",
            "check: running",
            "small.yaml:15: expect[0]: demands nothing; give one of share_at",
        ),
        (
            "check: running, pods: 5",
            "check: configured, offer: metl, count: 1",
            "expect[0].offer is 'metl'; give one of metal",
        ),
        (
            "check: running, pods: 5",
            "check: states, counts: {Idel: 0}",
            "names the state 'Idel'; give one of Speculative",
        ),
        ("check: running, pods: 5", "check: cost, below_baseline_by: 0.5", "give the scenario a baseline"),
        (
            "check: running, pods: 5",
            "check: actions, kind: any, count: 0, after: 6m",
            "expect[0].after is 6m, after the end",
        ),
        (
            "replicas: 3}",
            "replicas: 3}\n  - {kind: archetypes, name: mix, pods: 9, only: [tiny-statless]}",
            "small.yaml:12: workloads[1].only[0] is 'tiny-statless'; give one of cpu-batch",
        ),
        ("duration: 5m", "duration: 0s", "small.yaml:3: duration is '0s'; give more than 0"),
        (
            "replicas: 3",
            "replicas: 2026-99-99",
            "small.yaml:11: workloads[0].replicas is '2026-99-99'; give a whole number",
        ),
        ("resources: {cpu: 1}}", "resources: {cpu: 1}, requirements: [{key: 'a;b'}]}", "small.yaml:5: shapes.web: "),
        (
            "pods: 5}",
            "pods: 5, pods: 6}",
            "small.yaml:15: key 'pods' was given in line 15 already; give it once",
        ),
        (
            "resources: {cpu: 1}}",
            "resources: {cpu: 1, cpu: 2}}",
            "small.yaml:5: key 'cpu' was given in line 5 already; give it once",
        ),
        ("clusters: [{name: web}]", "clusters: [", "not YAML"),
    ],
)
def test_a_mistake_is_named_with_its_line(old: str, new: str, complaint: str) -> None:
    assert old in GOOD
    with pytest.raises(DocumentError) as caught:
        parse_scenario(GOOD.replace(old, new), "small.yaml")
    assert complaint in str(caught.value)
    assert str(caught.value).startswith("small.yaml:")


def test_a_scenario_written_out_reads_back_as_itself() -> None:
    for name in library.shipped():
        scenario = library.find(name)
        assert parse_scenario(to_yaml(scenario), name) == scenario


def test_every_shipped_scenario_fits_the_published_schema() -> None:
    validator = jsonschema.Draft202012Validator(published_schema(Schema.SCENARIO))
    for name in library.shipped():
        whole = json.loads(json.dumps(plain(library.find(name))))
        written = yaml.safe_load(shipped_file(name).read_text(encoding="utf-8"))
        assert [error.message for each in (whole, written) for error in validator.iter_errors(each)] == []


def test_the_schema_refuses_what_the_reader_refuses() -> None:
    validator = jsonschema.Draft202012Validator(published_schema(Schema.SCENARIO))
    assert validator.is_valid(yaml.safe_load(GOOD))
    for old, new in (("do: scale", "do: scael"), ("duration: 5m", "lasts: 5m"), ("replicas: 3", "replicas: -3")):
        assert not validator.is_valid(yaml.safe_load(GOOD.replace(old, new)))


def test_the_order_in_which_a_file_lists_things_does_not_matter() -> None:
    scenario = library.find("full-fleet-preemption")
    document = plain(scenario)
    for key in ("clusters", "workloads", "steps"):
        if key in document:
            document[key] = list(reversed(document[key]))
    assert parse_scenario(yaml.safe_dump(document), "turned") == scenario


def test_extends_merges_mappings_and_replaces_lists(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "base.yaml").write_text(GOOD)
    (tmp_path / "more.yaml").write_text(
        "extends: base\nname: more\nshapes: {api: {resources: {cpu: 2}}}\nclusters: [{name: other}]\nexpect: []\n"
    )
    more = load_scenario(tmp_path / "more.yaml")
    assert (more.name, sorted(more.shapes), more.cluster_names()) == ("more", ["api", "web"], ["other"])


def test_a_shipped_scenario_can_be_built_on_from_anywhere(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "mine.yaml").write_text("extends: withdrawal\nname: mine\n")
    assert load_scenario(tmp_path / "mine.yaml").with_(name="withdrawal") == library.find("withdrawal")
    (tmp_path / "mine.yaml").write_text("extends: nothing\n")
    with pytest.raises(DocumentError, match=r"mine.yaml:1: extends 'nothing'; give a scenario beside it, or a shipped"):
        load_scenario(tmp_path / "mine.yaml")


def test_what_is_wrong_in_a_base_is_named_with_its_own_file(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "base.yaml").write_text(GOOD)
    (tmp_path / "more.yaml").write_text("extends: base\nname: more\nclusters: [{name: other}]\nworkloads: []\n")
    with pytest.raises(DocumentError, match=r"base.yaml:13: steps\[0\].workload is 'web'; give one of none"):
        load_scenario(tmp_path / "more.yaml")


def test_a_file_that_is_no_text_is_refused(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(DocumentError, match=r"binary.yaml: is not text: byte 0 is not UTF-8"):
        load_scenario(tmp_path / "binary.yaml")


def test_clusters_are_dealt_out_to_shards_in_turn() -> None:
    scenario = parse_scenario(GOOD.replace("{name: web}]", "{name: web, count: 3}]") + "shards: 2\n", "small.yaml")
    assert scenario.shard_names() == {"shard-0": ["web-000", "web-002"], "shard-1": ["web-001"]}
    with pytest.raises(DocumentError, match=r"small.yaml:16: shards is 2 for 1 clusters; give at most one for each"):
        parse_scenario(GOOD + "shards: 2\n", "small.yaml")


def test_a_scenario_cannot_extend_itself(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "loop.yaml").write_text("extends: loop\n")
    with pytest.raises(DocumentError, match="extends itself"):
        load_scenario(tmp_path / "loop.yaml")


@pytest.mark.parametrize(
    ("ns", "text"), [(0, "0s"), (90 * 10**9, "90s"), (3600 * 10**9, "1h"), (1_500_000, "1500000ns")]
)
def test_durations_have_one_shortest_spelling(ns: int, text: str) -> None:
    assert spelled(ns) == text
