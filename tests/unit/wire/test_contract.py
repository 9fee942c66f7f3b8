"""The compiled descriptors are the shared contract plus the listed extensions, and nothing else."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from bigfleet.wire import capacity_pb2, coordinator_pb2, provider_pb2, shard_pb2, shardread_pb2
from tools.wire_contract import Row, problems, read_rows, rows_of

PROTO = Path(__file__).resolve().parents[3] / "proto"
MODULES = (capacity_pb2, provider_pb2, shard_pb2, coordinator_pb2, shardread_pb2)
BASE = read_rows(PROTO / "base.csv")
EXTENSIONS = read_rows(PROTO / "extensions.csv")


def compiled_files() -> list[descriptor_pb2.FileDescriptorProto]:
    files = []
    for module in MODULES:
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        files.append(file)
    return files


def find_message(files: list[descriptor_pb2.FileDescriptorProto], name: str) -> descriptor_pb2.DescriptorProto:
    return next(message for file in files for message in file.message_type if message.name == name)


def test_base_table_has_the_size_of_the_contract() -> None:
    counts = Counter(row.kind for row in BASE)
    assert counts == {"message": 69, "field": 217, "enum": 8, "value": 66, "rpc": 19, "reserved": 13}
    assert len(set(BASE)) == len(BASE)


def test_compiled_contract_is_base_plus_extensions() -> None:
    assert problems(rows_of(compiled_files()), BASE, EXTENSIONS) == []


def test_files_keep_their_wire_names() -> None:
    names = ["capacity", "provider", "shard", "coordinator", "shardread"]
    assert [file.name for file in compiled_files()] == [f"bigfleet/v1alpha1/{name}.proto" for name in names]
    assert {(file.package, file.syntax) for file in compiled_files()} == {("bigfleet.v1alpha1", "proto3")}


def test_no_field_declares_presence_and_nothing_comes_from_google() -> None:
    for file in compiled_files():
        assert all(dependency.startswith("bigfleet/v1alpha1/") for dependency in file.dependency)
        assert not [field.name for message in file.message_type for field in message.field if field.proto3_optional]


@pytest.mark.parametrize(
    ("number", "complaint"),
    [
        (1900, "in neither table: field,Hello,1900,stranger,string,,,"),
        (4, "in neither table: field,Hello,4,stranger,string,,,"),
    ],
)
def test_a_stranger_field_is_refused(number: int, complaint: str) -> None:
    files = compiled_files()
    find_message(files, "Hello").field.add(
        name="stranger",
        number=number,
        type=descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
        label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
    )
    assert problems(rows_of(files), BASE, EXTENSIONS) == [complaint]


def test_a_stranger_message_enum_value_and_call_are_refused() -> None:
    files = compiled_files()
    files[0].message_type.add(name="Stranger")
    files[0].enum_type[0].value.add(name="PENALTY_BUCKET_28", number=28)
    files[1].service[0].method.add(
        name="Watch", input_type=".bigfleet.v1alpha1.ListFilter", output_type=".bigfleet.v1alpha1.MachineList"
    )
    assert problems(rows_of(files), BASE, EXTENSIONS) == [
        "in neither table: message,Stranger,,,,,,",
        "in neither table: rpc,CapacityProvider,,Watch,ListFilter,unary,,MachineList",
        "in neither table: value,PenaltyBucket,28,PENALTY_BUCKET_28,,,,",
    ]


def test_a_changed_type_a_lost_field_and_a_freed_number_are_refused() -> None:
    files = compiled_files()
    find_message(files, "Hello").ClearField("reserved_range")
    machine = find_message(files, "Machine")
    next(field for field in machine.field if field.name == "zone").type = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
    del find_message(files, "MachineRef").field[0]
    assert problems(rows_of(files), BASE, EXTENSIONS) == [
        "base row lost or changed: field,Machine,5,zone,string,,,",
        "base row lost or changed: field,MachineRef,1,id,string,,,",
        "base row lost or changed: reserved,Hello,2,,,,,",
        "in neither table: field,Machine,5,zone,bytes,,,",
    ]


def test_an_extension_of_a_shared_type_may_not_take_a_low_number() -> None:
    low = Row("field", "Hello", "4", "sneaky", "string")
    assert problems([*BASE, *EXTENSIONS, low], BASE, [*EXTENSIONS, low]) == [
        f"extension below 1000 on a shared type: {low.as_csv()}"
    ]


def test_extension_numbers_are_the_agreed_ones() -> None:
    shared = {row.owner for row in BASE if row.kind in ("message", "enum")}
    added = {
        (row.owner, int(row.number)): row.name for row in EXTENSIONS if row.kind == "field" and row.owner in shared
    }
    assert added == {
        ("Hello", 1000): "capabilities",
        ("Hello", 1001): "bound_shard_id",
        ("Hello", 1002): "active_drains",
        ("ClusterCapacityNeeds", 1000): "node_overhead",
        ("ClusterCapacityNeeds", 1001): "mirror_version",
        ("CapacityNeed", 1000): "tolerations",
        ("CapacityNeed", 1001): "count",
        ("CapacityNeed", 1002): "stranded",
        ("CapacityNeed", 1003): "running",
        ("CapacityNeed", 1004): "domain_units",
        ("CapacityNeed", 1005): "exclusive",
        ("CapacityNeed", 1006): "interruption_microdollars",
        ("NodeStateUpdate", 1000): "group",
        ("OperatorMessage", 1000): "drain_report",
        ("OperatorMessage", 1001): "node_report",
        ("ShardMessage", 1000): "resync_end",
        ("ShardMessage", 1001): "reclaim_cancel",
        ("ShardMessage", 1002): "node_lost",
        ("ShardMessage", 1003): "node_closing",
        ("ReclaimInstruction", 1000): "voluntary",
        ("ReclaimInstruction", 1001): "empty",
        ("ReclaimInstruction", 1002): "room_within_seconds",
        ("Acknowledgement", 1000): "rollup_timestamp",
        ("Acknowledgement", 1001): "outcome",
        ("Acknowledgement", 1002): "reason",
        ("BootstrapRequest", 1000): "machine_id",
        ("BootstrapRequest", 1001): "node_name",
        ("BootstrapRequest", 1002): "labels",
        ("Machine", 1000): "taints",
        ("MachineList", 1000): "more",
        ("MachineList", 1001): "removed_ids",
        ("Shortfall", 1000): "cluster_id",
        ("Shortfall", 1001): "group",
        ("Shortfall", 1002): "fingerprint",
        ("Shortfall", 1003): "age_seconds",
        ("Shortfall", 1004): "topology_constrained",
        ("Shortfall", 1005): "min_unit",
        ("Shortfall", 1006): "units",
        ("Shortfall", 1007): "coming",
        ("Shortfall", 1008): "cause",
        ("ShardSummary", 1000): "free_cells",
        ("ShardReport", 1000): "clusters",
        ("ShardReport", 1001): "capabilities",
        ("ShardReport", 1002): "ownership_version",
        ("ShardReport", 1003): "highest_term",
        ("ShardReport", 1004): "providers",
        ("ShardReport", 1005): "arriving",
        ("ShardReport", 1006): "relabelled",
        ("ShardReport", 1007): "looked",
        ("ShardReport", 1008): "unsure",
        ("ReportAck", 1000): "ownership",
        ("ReportAck", 1001): "bindings",
        ("ReportAck", 1002): "rails",
        ("ReportAck", 1003): "providers",
        ("ReportAck", 1004): "look",
        ("ReportAck", 1005): "sure",
        ("ReassignSpeculative", 1000): "selector",
        ("ReassignSpeculative", 1001): "transfer_id",
        ("CrossShardDrain", 1000): "selector",
        ("CrossShardDrain", 1001): "transfer_id",
        ("CrossShardDrain", 1002): "preemptor_bucket",
        ("CrossShardDrain", 1003): "units",
        ("CrossShardDrain", 1004): "missing",
        ("TransferOwnership", 1000): "selector",
        ("TransferOwnership", 1001): "transfer_id",
        ("InstructAck", 1000): "machine_ids",
        ("InstructAck", 1001): "provider",
        ("QuotaAllocation", 1000): "slots",
        ("NeedView", 1010): "sold_out",
        ("NeedView", 1011): "barred",
        ("NeedView", 1012): "detail",
        ("NeedView", 1013): "failed_machines",
        ("NeedView", 1014): "held",
        ("NeedView", 1015): "away_since_unix_nanos",
        ("NeedView", 1016): "not_as_offered",
        ("Machine", 1001): "interruption_at_unix_nanos",
        ("ShardSummary", 1001): "dollars_per_hour",
        ("NeedView", 1000): "units",
    }


def test_added_calls_are_the_agreed_ones() -> None:
    added: dict[str, set[str]] = {}
    for row in EXTENSIONS:
        if row.kind == "rpc":
            added.setdefault(row.owner, set()).add(row.name)
    coordinator = "SetQuota UpsertProvider RemoveProvider MoveDomain MoveCluster ListClusters SetRails SnapshotVerify"
    assert added == {
        "ShardRead": {"ListMachines", "ListActions", "Explain", "Story"},
        "ShardAdmin": {"SetRails", "Record", "ForgetCluster"},
        "Coordinator": set(coordinator.split()),
    }


def test_frames_have_the_documented_bytes() -> None:
    """Written by hand from the field numbers, so that a compiler mishap cannot hide in a round trip."""
    hello = shard_pb2.OperatorMessage(hello=shard_pb2.Hello(cluster_id="c1", protocol_version="v1alpha1"))
    assert hello.SerializeToString() == b"\x0a\x0e\x0a\x02c1\x1a\x08v1alpha1"
    create = provider_pb2.CreateRequest(machine_id="m", shard_id="s", shard_epoch=2, sequence_number=300)
    assert create.SerializeToString() == b"\x0a\x01m\x1a\x01s\x20\x02\x28\xac\x02"
    states = provider_pb2.ListFilter(states=[provider_pb2.MACHINE_STATE_IDLE, provider_pb2.MACHINE_STATE_FAILED])
    assert states.SerializeToString() == b"\x0a\x02\x03\x08"
    need = capacity_pb2.CapacityNeed(aggregate_resources={"cpu": "500m"}, priority=-1)
    assert need.SerializeToString() == b"\x12\x0b\x0a\x03cpu\x12\x04500m\x18" + b"\xff" * 9 + b"\x01"
    taint = provider_pb2.Machine(taints=[shard_pb2.Taint(key="k")])
    assert taint.SerializeToString() == b"\xc2\x3e\x03\x0a\x01k"
