"""Frames and records from anywhere: decoding agrees with a plain reading of the message and never raises by itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.engine.batches import Rollup
from bigfleet.model.machine import MachineState
from bigfleet.model.resources import Resources
from bigfleet.shard.contract import events as ev
from bigfleet.shard.provider_io.machine_codec import MachineDecoder, Undecodable
from bigfleet.shard.streams import codec
from bigfleet.shard.streams.rollup_codec import RollupDecoder, RollupError, raw_body, raw_rollup
from bigfleet.wire import capacity_pb2, provider_pb2, shard_pb2

NAMES = st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "ephemeral-storage"])
AMOUNTS = st.sampled_from(["0", "1", "500m", "4Gi", "1.5", "12e3", "7Ki"])
VECTORS = st.dictionaries(NAMES, AMOUNTS, max_size=4)
TEXTS = st.text(st.characters(codec="ascii", exclude_characters=",;:|", categories=["L", "N"]), min_size=1, max_size=8)
TIMESTAMPS = st.integers(-(2**63), 2**63 - 1)
# Zero and one often, because a count in some rows only is an error of its own.
UNITS = st.sampled_from([0, 1, 1, 1, 7, 2**31 - 1, -1])
VERSIONS = st.one_of(st.sampled_from([0, 1, 5, 0x48, 0x3E]), st.integers(0, 2**62))


@st.composite
def needs(draw: st.DrawFn) -> capacity_pb2.CapacityNeed:
    need = capacity_pb2.CapacityNeed(
        priority=draw(st.integers(-(2**31), 2**31 - 1)),
        aggregate_resources=draw(VECTORS),
        min_unit=draw(VECTORS),
        group=draw(st.sampled_from(["", "g\x00x", "h"])),
    )
    need.interruption_penalty_bucket = draw(st.one_of(st.just(2), st.integers(0, 27)))  # type: ignore[assignment]
    need.reclamation_penalty_bucket = draw(st.integers(0, 27))  # type: ignore[assignment]
    if need.interruption_penalty_bucket == 2:
        need.interruption_microdollars = draw(st.sampled_from([0, 1, 15_625, 500_000]))
    need.count = draw(UNITS)
    need.running = draw(UNITS)
    need.stranded = draw(UNITS)
    need.domain_units.update(draw(st.dictionaries(TEXTS, UNITS, max_size=2)))
    need.exclusive.extend(draw(st.lists(TEXTS, max_size=2, unique=True)))
    for key in draw(st.lists(TEXTS, max_size=3)):
        operator = draw(st.integers(0, 5))
        need.requirements.add(key=key, operator=operator, values=draw(st.lists(TEXTS, min_size=1, max_size=3)))  # type: ignore[arg-type]
    return need


ROLLUPS = st.builds(
    lambda cluster, timestamp, rows, overhead, version: capacity_pb2.ClusterCapacityNeeds(
        cluster_id=cluster,
        timestamp_unix_nanos=timestamp,
        needs=rows,
        node_overhead=overhead,
        mirror_version=version,
    ),
    TEXTS,
    TIMESTAMPS,
    st.lists(needs(), max_size=6),
    VECTORS,
    VERSIONS,
)


def envelope(rollup: capacity_pb2.ClusterCapacityNeeds) -> bytes:
    return shard_pb2.OperatorMessage(rollup=rollup).SerializeToString(deterministic=True)


@given(ROLLUPS)
def test_columns_say_what_the_message_says(rollup: capacity_pb2.ClusterCapacityNeeds) -> None:
    raw = raw_rollup(envelope(rollup))
    assert raw is not None
    decoder = RollupDecoder()
    for _ in range(2):  # the second time from interned constraint sets
        columns, timestamp = decoder.decode(raw.body)
        assert (columns.cluster, timestamp) == (rollup.cluster_id, rollup.timestamp_unix_nanos)
        assert columns.overhead == Resources.parse(rollup.node_overhead, round_up=True)
        assert len(columns) == len(rollup.needs)
        for row, need in enumerate(rollup.needs):
            profile = columns.profiles[columns.profile[row]]
            assert profile.priority == need.priority
            assert {requirement.key for requirement in profile.requirements} == {each.key for each in need.requirements}
            group = columns.groups[columns.group[row]] if columns.group[row] >= 0 else ""
            assert group == need.group
            for matrix, quantities in (
                (columns.aggregate, need.aggregate_resources),
                (columns.min_unit, need.min_unit),
            ):
                amounts = dict(zip(columns.resources, matrix[row].tolist(), strict=True))
                assert Resources(amounts) == Resources.parse(quantities, round_up=True)


@given(ROLLUPS, TIMESTAMPS)
def test_the_digest_ignores_the_timestamp_and_nothing_else(
    rollup: capacity_pb2.ClusterCapacityNeeds, later: int
) -> None:
    first = raw_rollup(envelope(rollup))
    again = capacity_pb2.ClusterCapacityNeeds.FromString(rollup.SerializeToString())
    again.timestamp_unix_nanos = later
    second = raw_rollup(envelope(again))
    assert first is not None and second is not None
    if rollup.timestamp_unix_nanos and later:
        assert first.digest == second.digest
        assert (first.timestamp, second.timestamp) == (rollup.timestamp_unix_nanos, later)
    again.needs.add(priority=1)
    third = raw_rollup(envelope(again))
    assert third is not None and third.digest != second.digest


@given(st.binary(max_size=200))
def test_any_bytes_are_read_as_something(frame: bytes) -> None:
    found = codec.received(1, frame)
    if isinstance(found, codec.RawRollup):
        try:
            RollupDecoder().decode(found.body)
        except RollupError as error:
            assert str(error)


@given(ROLLUPS, st.data())
def test_damaged_rollups_are_refused_or_read_but_never_break_the_decoder(
    rollup: capacity_pb2.ClusterCapacityNeeds, data: st.DataObject
) -> None:
    body = bytearray(rollup.SerializeToString())
    for _ in range(data.draw(st.integers(0, 3))):
        if body:
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    raw = raw_body(bytes(body))
    assert outcome(RollupDecoder().decode, raw.body) == outcome(RollupDecoder().parsed, raw.body)


def outcome(decode: Callable[[bytes], tuple[Rollup, int]], body: bytes) -> object:
    """Everything a decoded roll-up says, or that it was refused."""
    try:
        rollup, timestamp = decode(body)
    except RollupError as error:
        assert str(error)
        return "refused"
    rows = [
        (
            rollup.profiles[rollup.profile[row]].fingerprint,
            rollup.groups[rollup.group[row]] if rollup.group[row] >= 0 else "",
            Resources(dict(zip(rollup.resources, rollup.aggregate[row].tolist(), strict=True))),
            Resources(dict(zip(rollup.resources, rollup.min_unit[row].tolist(), strict=True))),
        )
        for row in range(len(rollup))
    ]
    return rollup.cluster, timestamp, rows, rollup.overhead


@given(st.binary(max_size=200))
def test_any_bytes_are_a_machine_or_say_why_not(record: bytes) -> None:
    found = MachineDecoder("p").read(record)
    assert isinstance(found, ev.ListedMachine) or (isinstance(found, Undecodable) and found.problem)


@given(
    st.integers(0, 9),
    st.sampled_from(["", "c-1"]),
    st.sampled_from(["", "i-1"]),
    st.dictionaries(NAMES, st.sampled_from(["0", "1", "500m", "1.5", "7Ki"]), max_size=4),
    st.dictionaries(TEXTS, TEXTS, max_size=3),
)
def test_a_machine_is_read_as_it_is_and_equal_shapes_are_one_object(
    state: int, cluster: str, host: str, vector: dict[str, str], labels: dict[str, str]
) -> None:
    message = provider_pb2.Machine(id="m-1", cluster=cluster, instance_type="t", zone="z", labels=labels)
    message.state = state  # type: ignore[assignment]
    message.resources.resources.update(vector)
    if host:
        message.host.ref = host
    decoder = MachineDecoder("p")
    found = decoder.read(message.SerializeToString())
    if state not in range(1, 9):
        assert isinstance(found, Undecodable) and found.id == "m-1"
        return
    assert isinstance(found, ev.ListedMachine)
    assert (found.id, int(found.state), found.cluster, found.host) == ("m-1", state, cluster, host)
    assert found.shape.allocatable == Resources.parse(vector, round_up=False)
    assert dict(found.shape.labels) == labels
    message.id = "m-2"
    twin = decoder.read(message.SerializeToString())
    assert isinstance(twin, ev.ListedMachine) and twin.shape is found.shape


@given(ROLLUPS)
def test_units_are_read_where_every_row_has_a_count(rollup: capacity_pb2.ClusterCapacityNeeds) -> None:
    raw = raw_rollup(envelope(rollup))
    assert raw is not None
    given = [need.count != 0 for need in rollup.needs]
    decoder = RollupDecoder()
    for decode in (decoder.decode, decoder.decode, decoder.parsed):
        assert decode(raw.body)[0].counted is None, "without placement rows are sums"
        if any(given) and not all(given):
            with pytest.raises(RollupError, match=rf"needs\[{given.index(False)}\]\.count is 0"):
                decode(raw.body, placement=True)
            continue
        counted = decode(raw.body, placement=True)[0].counted
        if not all(given):
            assert counted is None
            continue
        assert counted is not None and counted.mirror_version == rollup.mirror_version
        for row, need in enumerate(rollup.needs):
            told = (counted.count[row], counted.running[row], counted.stranded[row])
            assert told == (need.count, need.running, need.stranded)
            assert dict(counted.domain_units.get(row, ())) == dict(need.domain_units)
            assert counted.exclusive.get(row, ()) == tuple(need.exclusive)


@given(ROLLUPS, VERSIONS, TIMESTAMPS)
def test_only_the_mirror_version_and_the_timestamp_make_no_difference(
    rollup: capacity_pb2.ClusterCapacityNeeds, version: int, timestamp: int
) -> None:
    later = capacity_pb2.ClusterCapacityNeeds()
    later.CopyFrom(rollup)
    later.mirror_version = version
    later.timestamp_unix_nanos = timestamp or 1
    rollup.timestamp_unix_nanos = rollup.timestamp_unix_nanos or 1
    one, other = raw_rollup(envelope(rollup)), raw_rollup(envelope(later))
    assert one is not None and other is not None
    assert one.digest == other.digest
    assert (one.mirror_version, other.mirror_version) == (rollup.mirror_version, version)
    if later.needs:
        # The last row ends in bytes that look like a version; they are not one.
        later.needs[-1].count += 1 if later.needs[-1].count < 2**31 - 1 else -1
        changed = raw_rollup(envelope(later))
        assert changed is not None and changed.digest != one.digest


def test_a_machine_says_for_which_gang_it_was_bound_and_peers_that_do_not_know_it_lose_nothing() -> None:
    frame = ev.NodeState("m-1", "c", MachineState.CONFIGURING, "n", "p", "", None, "rack job=a")
    update = codec.shard_message(frame).node_state_update
    assert update.group == "rack job=a"
    assert shard_pb2.NodeStateUpdate.FromString(update.SerializeToString()).group == "rack job=a"
    # A peer that does not know the field: what it reads and writes again is the rest, and no group is the default.
    known = [(field, value) for field, value in update.ListFields() if field.number < 1000]
    plain = shard_pb2.NodeStateUpdate(**{field.name: value for field, value in known})
    assert plain.group == "" and plain.machine_id == "m-1" and plain.state == update.state
