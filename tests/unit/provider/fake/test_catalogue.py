"""The fake's catalogue: what the built-in one offers, how it scales, and that every mistake is named."""

from __future__ import annotations

from collections import Counter
from importlib import resources

import pytest

from bigfleet.model.machine import CapacityType
from bigfleet.provider.fake.catalogue import Catalogue, builtin_catalogue, parse_catalogue
from bigfleet.provider.fake.fields import CatalogueError
from bigfleet.provider.fake.instance_types import known_instance_types
from bigfleet.provider.kit.core.records import Kind
from bigfleet.virtual.kernel import MILLISECOND, SECOND, Duration

SMALL = """
provider: acme
seed: 9
durations: instant
latencies:
  create: {distribution: lognormal, median: 40s, p99: 90s}
  drain: 250ms
timeouts: {create: 10m}
relist_after: 30s
failure_rates: {create: 0.25}
rate_limits: {create: {per_second: 5, burst: 2, excess: fail}}
misfortune: {interruptions: 1, notice: 2m, losses_per_hour: 0.5, broken_share: 0.1}
faults:
  - {transition: configure, effect: fail, cluster: bad, error: no route}
schedule:
  - {at: 60s, do: shrink-quota, offering: web, fraction: 0.5}
offerings:
  - {name: web, instance_type: m6i.large, capacity_type: spot, count: 7, zones: [a, b], racks: 2}
  - name: own
    instance_type: custom-1
    capacity_type: on-demand
    count: 3
    hosts: 1
    zones: [c]
    price_per_hour: 2.5
    resources: {cpu: 4, memory: 16Gi}
    labels: {team: red}
    taints: [{key: gpu, effect: NoExecute}]
"""


def test_the_built_in_catalogue_is_a_realistic_fleet_of_at_least_256_slots() -> None:
    catalogue = builtin_catalogue()
    assert catalogue.slots >= 256
    instances = [i for offering in catalogue.offerings for i in offering.instances(catalogue.provider)]
    assert len({instance.id for instance in instances}) == len(instances) == catalogue.size
    assert [instance.problem(require_zone=True) for instance in instances] == [None] * len(instances)
    assert {instance.labels["bigfleet.lucy.sh/simulated"] for instance in instances} == {"true"}
    kinds = Counter(instance.capacity_type for instance in instances)
    assert set(kinds) == set(CapacityType) - {CapacityType.UNSPECIFIED}
    assert len({instance.zone for instance in instances}) >= 4
    assert len({instance.labels["topology.bigfleet/rack"] for instance in instances}) >= 12
    for instance in instances:
        assert (instance.price_per_hour == 0) == (instance.capacity_type == CapacityType.BARE_METAL)
        assert (instance.host is not None) == (instance.capacity_type == CapacityType.BARE_METAL)


def test_the_settings_shown_in_the_built_in_catalogue_are_ones_it_takes() -> None:
    text = resources.files("bigfleet.provider.fake").joinpath("builtin_catalogue.yaml").read_text()
    shown = "\n".join(line.removeprefix("#:")[1:] for line in text.splitlines() if line.startswith("#:"))
    catalogue = parse_catalogue(text + "\n" + shown, "shown")
    assert (catalogue.seed, len(catalogue.faults), len(catalogue.schedule)) == (7, 2, 2)
    assert catalogue.slots == builtin_catalogue().slots


def test_known_instance_types_bring_their_size_and_price() -> None:
    assert len(known_instance_types()) == 32
    p5 = known_instance_types()["p5.48xlarge"]
    assert p5.resources() == {"cpu": "192", "memory": "2048Gi", "nvidia.com/gpu": "8"}
    offering = {offering.name: offering for offering in builtin_catalogue().offerings}["spot-m6i-xlarge"]
    assert offering.price_per_hour == pytest.approx(0.192 * 0.3)
    assert offering.allocatable == {"cpu": "4", "memory": "16Gi"}


def test_every_field_of_a_file_arrives() -> None:
    catalogue = parse_catalogue(SMALL, "small")
    assert (catalogue.provider, catalogue.seed, catalogue.slots, catalogue.size) == ("acme", 9, 9, 10)
    assert catalogue.latencies.create == Duration.lognormal(40 * SECOND, 90 * SECOND)
    assert catalogue.latencies.drain == Duration.fixed(250 * MILLISECOND)
    assert catalogue.latencies.configure == Duration.fixed(0)
    assert catalogue.timeouts.create == 600.0
    assert catalogue.relist_seconds == 30.0
    assert catalogue.failure_rates == {Kind.CREATE: 0.25}
    assert catalogue.rate_limits[Kind.CREATE].fail
    assert catalogue.misfortune.notice_seconds == 120.0
    assert catalogue.faults[0].error == "no route"
    assert catalogue.schedule[0].at_seconds == 60.0
    web, own = catalogue.offerings
    assert [web.machine_id(number) for number in (0, 1, 2)] == ["web-a-0000", "web-b-0001", "web-a-0002"]
    racks = [instance.labels["topology.bigfleet/rack"] for instance in web.instances("acme")]
    assert racks[:5] == ["a-rack-0", "b-rack-0", "a-rack-1", "b-rack-1", "a-rack-0"]
    first, second, _ = own.instances("acme")
    assert first.host is not None and second.host is None
    assert (first.price_per_hour, first.resources["cpu"], first.labels["team"]) == (2.5, "4", "red")
    assert first.taints[0].effect == "NoExecute"


def test_a_machine_is_found_again_by_its_id() -> None:
    catalogue = parse_catalogue(SMALL, "small")
    for offering in catalogue.offerings:
        for instance in offering.instances("acme"):
            assert catalogue.instance(instance.id) == instance
    for unknown in ("web-a-0001", "web-a-0008", "web-c-0000", "ghost", "web-a-x", ""):
        assert catalogue.instance(unknown) is None


@pytest.mark.parametrize("slots", [1, 4, 64, 441, 4_000, 100_000])
def test_a_catalogue_scales_to_exactly_as_many_slots_and_keeps_its_mix(slots: int) -> None:
    catalogue = builtin_catalogue().with_slots(slots)
    assert catalogue.slots == slots
    assert catalogue.size == slots + 32
    if slots >= 4_000:
        share = sum(o.count for o in catalogue.offerings if o.capacity_type == CapacityType.SPOT) / slots
        assert share == pytest.approx(180 / 440, abs=0.01)


def offering(**changes: object) -> str:
    fields: dict[str, object] = {
        "name": "web",
        "instance_type": "m6i.large",
        "capacity_type": "spot",
        "count": 1,
        "zones": ["a"],
        **changes,
    }
    return repr({"offerings": [{key: value for key, value in fields.items() if value is not None}]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("offerings: [", "cat is not YAML"),
        ("- a", r"cat is \['a'\]; give a mapping"),
        ("{}", "cat.offerings is empty; give at least one offering"),
        ("offerings: 3", "cat.offerings is 3; give a list"),
        ("{offerings: [], colour: red}", "cat has an unknown field 'colour'; known are durations, provider"),
        (offering(name="Web!"), r"cat.offerings\[0\].name is 'Web!'; give a name of lower-case letters"),
        (offering(name=None), r"cat.offerings\[0\].name is missing"),
        (offering(capacity_type="burst"), "capacity_type is 'burst'; give one of bare-metal, reserved, on-demand"),
        (offering(count=0), "count is 0; give a whole number from 1"),
        (offering(count=True), "count is True; give a whole number"),
        (offering(zones=[]), r"zones is \[\]; give one or more different zone names"),
        (offering(zones=["a", "a"]), "one or more different zone names"),
        (offering(hosts=2), "hosts is 2; give a whole number from 0 to 1"),
        (offering(price_per_hour=-1), "price_per_hour is -1; give a number from 0"),
        (offering(interruption_probability=1.5), "interruption_probability is 1.5; give a number from 0 to 1"),
        (offering(interruption_probability=0), "interruption_probability is 0; give more than 0 for spot"),
        (offering(instance_type="mystery"), "resources is missing and 'mystery' is not in the table"),
        (
            offering(instance_type="mystery", resources={"cpu": "4"}),
            r"price_per_hour is missing; give a number",
        ),
        (offering(resources={"cpu": "four"}), "resources.cpu is 'four'; give a Kubernetes quantity"),
        (offering(labels={"zone": "a"}), "labels.zone is 'a'; give this value in the field made for it"),
        (offering(taints=[{"key": "k", "effect": "No"}]), r"taints\[0\].effect is 'No'; give one of NoSchedule"),
        ("{offerings: [], durations: slow}", "durations is 'slow'; give one of instant, quick, realistic"),
        ("{offerings: [], latencies: {create: soon}}", "latencies.create is 'soon'; give a duration such as 250ms"),
        (
            "{offerings: [], latencies: {create: {distribution: uniform, from: 5s, to: 1s}}}",
            "latencies.create: a uniform duration ends at",
        ),
        ("{offerings: [], rate_limits: {create: {per_second: 0}}}", "per_second is 0; give a number from 0.001"),
        ("{offerings: [], failure_rates: {create: .nan}}", "failure_rates.create is nan; give a number from 0 to 1"),
        ("{offerings: [], faults: [{transition: fly}]}", r"faults\[0\].transition is 'fly'; give one of create"),
        (
            "{offerings: [], faults: [{transition: drain, effect: unready}]}",
            "effect is 'unready'; give unready only for transition configure",
        ),
        (
            "{offerings: [], faults: [{transition: drain, effect: smaller, allocatable: {cpu: 2}}]}",
            "effect is 'smaller'; give smaller only for transition create",
        ),
        (
            "{offerings: [], faults: [{transition: create, effect: smaller}]}",
            "allocatable is {}; give amounts with effect smaller",
        ),
        ("{offerings: [], schedule: [{do: hold, transition: create}]}", r"schedule\[0\].at is missing"),
        ("{offerings: [], schedule: [{at: 1s, do: explode}]}", "do is 'explode'; give one of fault-next"),
    ],
)
def test_every_mistake_names_the_field_its_value_and_what_is_accepted(text: str, message: str) -> None:
    with pytest.raises(CatalogueError, match=message):
        parse_catalogue(text, "cat")


def test_two_offerings_of_one_name_are_refused() -> None:
    twice = parse_catalogue(SMALL, "small")
    assert isinstance(twice, Catalogue)
    with pytest.raises(CatalogueError, match="names 'web' twice"):
        parse_catalogue(SMALL.replace("name: own", "name: web"), "small")
