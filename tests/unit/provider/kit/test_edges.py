"""The small parts around the core: offerings, flags, wire bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.model.taint import Taint
from bigfleet.provider import kit
from bigfleet.provider.kit.codec import MachineCodec
from bigfleet.provider.kit.core.fleet import Page
from bigfleet.provider.kit.core.records import Host, MachineRecord, Shape
from bigfleet.provider.kit.offerings import OfferingError
from bigfleet.wire import provider_pb2 as pb


def write(tmp_path: Path, content: object) -> Path:
    path = tmp_path / "offerings.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_offerings_become_slots_with_stable_ids(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        [
            {"instance_type": "kvm.small", "zone": "a", "count": 2, "price_per_hour": 0.1},
            {
                "instance_type": "kvm.small",
                "zone": "b",
                "count": 1,
                "capacity_type": "spot",
                "interruption_probability": 0.05,
                "labels": {"rack": "r1"},
                "taints": [{"key": "gpu", "effect": "NoSchedule"}],
            },
        ],
    )
    slots = [slot for offering in kit.read_offerings(path) for slot in offering.slots("acme")]
    assert [slot.id for slot in slots] == [
        "acme/OnDemand/kvm.small/a/000",
        "acme/OnDemand/kvm.small/a/001",
        "acme/Spot/kvm.small/b/000",
    ]
    assert slots[2].capacity_type is CapacityType.SPOT and slots[2].labels == {"rack": "r1"}
    assert slots[2].taints == (("gpu", "", "NoSchedule"),) and slots[0].taints == ()
    assert not [slot for slot in slots if slot.problem(require_zone=True)]


@pytest.mark.parametrize(
    ("entries", "word"),
    [
        ("not json", "JSON"),
        ([], "non-empty"),
        ([1], "object"),
        ([{"instance_type": "x", "zone": "a", "count": 0}], "count"),
        ([{"instance_type": "x", "zone": "", "count": 1}], "zone"),
        ([{"instance_type": "", "zone": "a", "count": 1}], "instance_type"),
        ([{"instance_type": "x", "zone": "a", "count": 1, "capacity_type": "free"}], "capacity_type"),
        ([{"instance_type": "x", "zone": "a", "count": 1, "colour": "red"}], "colour"),
        ([{"instance_type": "x", "zone": "a", "count": 1, "labels": {"zone": "a"}}], "label"),
        ([{"instance_type": "x", "zone": "a", "count": 1, "resources": {"cpu": 4}}], "resources"),
        ([{"instance_type": "x", "zone": "a", "count": 1, "taints": [{"key": "gpu"}]}], "taints must"),
        ([{"instance_type": "x", "zone": "a", "count": 1, "taints": [{"key": "g", "effect": "No"}]}], "taint effect"),
        ([{"instance_type": "x", "zone": "a", "count": 1, "capacity_type": "spot"}], "interruption_probability"),
    ],
)
def test_a_wrong_offering_is_named(tmp_path: Path, entries: object, word: str) -> None:
    with pytest.raises(OfferingError, match=word):
        kit.read_offerings(write(tmp_path, entries))


def test_a_seed_count_is_shared_out_evenly() -> None:
    market = [kit.Offering("a", "z", 1), kit.Offering("b", "z", 1), kit.Offering("c", "z", 1)]
    assert [offering.count for offering in kit.spread(market, 8)] == [3, 3, 2]
    assert [offering.count for offering in kit.spread(market, 1)] == [1]


def test_flags_have_the_documented_defaults_and_both_spellings() -> None:
    flags = kit.parse_flags([])
    assert (flags.addr, flags.seed_count, flags.state, flags.reconcile_interval) == (":9000", 32, "", 120.0)
    assert (flags.metrics_addr, flags.bootstrap_hook) == (":9090", "/opt/bigfleet/bootstrap")
    assert kit.parse_flags(["--listen", "127.0.0.1:1"]).addr == kit.parse_flags(["--addr=127.0.0.1:1"]).addr
    assert kit.parse_flags(["--reconcile-interval", "90s"]).reconcile_interval == 90.0
    assert kit.parse_flags(["--transition-timeout=2s"]).timeouts(kit.Timeouts()) == kit.Timeouts(2, 2, 2, 2)
    assert kit.parse_flags(["--reflection"]) == kit.parse_flags(["--reflection=true"]) == flags and flags.reflection
    assert not kit.parse_flags(["--reflection=false"]).reflection


def test_an_author_can_add_flags() -> None:
    flags = kit.parse_flags(["--region", "eu"], add_flags=lambda parser: parser.add_argument("--region") and None)
    assert flags.extra == {"region": "eu"}


@pytest.mark.parametrize("bad", [["--seed-count", "-1"], ["--reflection=maybe"], ["--reconcile-interval", "soon"]])
def test_a_bad_flag_ends_with_usage(bad: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        kit.parse_flags(bad)
    assert ended.value.code == 2


def test_wire_bytes_are_ordinary_protobuf() -> None:
    shape = Shape(
        "box",
        "a",
        CapacityType.SPOT,
        0.25,
        0.05,
        (("cpu", "4"),),
        (("cpu", "3900m"),),
        (("rack", "r1"),),
        (Taint("gpu", "yes", "NoExecute"),),
    )
    record = MachineRecord(
        "m\0", MachineState.CONFIGURED, shape, Host("acme", "i-1"), "c1", {"k\0": "v" * 300, "": ""}, "", 7
    )
    codec = MachineCodec()
    machine = pb.Machine.FromString(codec.machine(record))
    assert machine == pb.Machine(
        id="m\0",
        state=pb.MACHINE_STATE_CONFIGURED,
        host=pb.HostRef(provider="acme", ref="i-1"),
        instance_type="box",
        zone="a",
        capacity_type=pb.CAPACITY_TYPE_SPOT,
        price_per_hour=0.25,
        interruption_probability=0.05,
        resources=pb.Resources(resources={"cpu": "4"}),
        allocatable=pb.Resources(resources={"cpu": "3900m"}),
        labels={"rack": "r1"},
        cluster="c1",
        shard_metadata={"k\0": "v" * 300, "": ""},
        taints=[pb.Taint(key="gpu", value="yes", effect="NoExecute")],
    )
    ack = pb.TransitionAck.FromString(codec.acknowledgement("op-1", record))
    assert ack == pb.TransitionAck(operation_id="op-1", machine=machine)
    page = Page([record, record], b"g.7", True, ["gone"])
    listed = pb.MachineList.FromString(codec.page(page))
    assert listed == pb.MachineList(machines=[machine, machine], revision=b"g.7", more=True, removed_ids=["gone"])
