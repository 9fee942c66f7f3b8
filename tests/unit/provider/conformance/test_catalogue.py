"""The catalogue holds exactly the frozen behaviours of the contract, each explained, plus our own under new ids."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from bigfleet.provider.conformance.behaviours.metadata import hostile_map
from bigfleet.provider.conformance.registry import Lane, catalogue, catalogue_faults, find

FROZEN = [
    101, *range(103, 110), *range(201, 216), *range(301, 304), *range(305, 313), *range(401, 410), *range(501, 506),
    *range(701, 709), *range(801, 808), *range(901, 910), *range(1001, 1008), *range(1101, 1110), *range(1201, 1206),
]  # fmt: skip
EXTRAS = {
    "B110", "B111", "B112", "B216", "B217", "B218", "B219", "B313", "B709", "B808", "B910", "B911", "B912",
    "B913", "B914", "B1008", "B1009", "B1110", "B1301", "B1302", "B1303", "B1304", "B1305",
}  # fmt: skip
BASELINE = [
    "FullLifecycle",
    "CreateIdempotent",
    "ConfigureIdempotent",
    "DrainIdempotent",
    "DeleteIdempotent",
    "GetUnknownMachine",
    "DeleteUnknownMachine",
    "ListFiltersByState",
    "ListMaxResults",
    "LabelShape",
    "CostFieldBounds",
    "ListRevisionAdvances",
    "DrainOnSpeculative",
    "DeleteOnConfigured",
    "TransitionalStateObservability",
    "DrainGraceTimeout",
    "FencingUnknownShardAccepted",
    "FencingStaleEpochRejected",
    "FencingStaleSequenceRejected",
    "FencingPerMachineIsolation",
    "FencingNewEpochResetsSequence",
    "FencingReadsUnaffected",
    "MetadataEchoedOnGetAndList",
    "MetadataAndBindingClearOnDrain",
    "MetadataUnknownKeysPreservedVerbatim",
]
AREAS = {
    "Lifecycle & State Machine": 8,
    "Transition Matrix / Errors": 15,
    "Fencing": 11,
    "Concurrency & Idempotency": 9,
    "Metadata": 5,
    "Timeouts & Failure": 8,
    "Field Shape & Cost": 7,
    "List, Revision & Pagination": 9,
    "Durability / Restart Recovery": 7,
    "Scale & Soak": 9,
    "Property / Fuzz": 5,
}


def test_the_93_frozen_behaviours_are_all_there_in_their_areas() -> None:
    frozen = {f"B{number}" for number in FROZEN}
    assert len(frozen) == 93
    ours = {b.id: b for b in catalogue() if not b.is_baseline}
    assert set(ours) == frozen | EXTRAS
    assert Counter(ours[i].area for i in frozen) == AREAS


def test_the_25_baseline_tests_are_all_there_by_name() -> None:
    assert sorted(b.name for b in catalogue() if b.is_baseline) == sorted(BASELINE)
    assert len(BASELINE) == 25


def test_profiles_of_the_frozen_behaviours_are_the_documented_ones() -> None:
    by_id = {b.id: b for b in catalogue()}
    core = [i for i in (f"B{n}" for n in FROZEN) if "core" in by_id[i].profiles]
    assert len(core) == 69
    assert all(by_id[i].lane is Lane.SUITE and by_id[i].lane.phase == 2 for i in core)
    cloud = {i for i in core if "cloud" in by_id[i].profiles}
    assert cloud == {"B109", "B204", "B215", "B409", "B807"}
    assert [i for i in core if "spot" in by_id[i].profiles] == ["B802"]
    for profile, block in (("fault", range(701, 709)), ("durable", range(1001, 1008)), ("scale", range(1101, 1110))):
        assert all(by_id[f"B{n}"].profiles == (profile,) for n in block)


def test_the_catalogue_is_sound() -> None:
    assert catalogue_faults(catalogue()) == []


def test_the_catalogue_check_notices_what_is_wrong() -> None:
    good = find("B305")
    assert good is not None
    bad = [good, replace(good, profiles=("corps",)), replace(good, id="X1", explanation="", slots=(3, 1))]
    faults = "\n".join(catalogue_faults(bad))
    for expected in ("B305 is registered twice", "unknown profile 'corps'", "'X1' is not", "no explanation", "fewer"):
        assert expected in faults


def test_behaviours_are_found_by_id_and_by_reference_test_name() -> None:
    assert find("b305") is find("ReadsNeverFence")
    assert find("TestConformance_FullLifecycle") is find("fulllifecycle")
    assert find("B304") is None


def test_titles_are_readable() -> None:
    titles = {i: b.title for i in ("B206", "B305", "B1106") if (b := find(i))}
    assert titles == {
        "B206": "Idempotent same operation ID",
        "B305": "Reads never fence",
        "B1106": "Per RPC latency budget",
    }


def test_no_behaviour_of_the_suite_needs_more_than_four_machines() -> None:
    assert [b.id for b in catalogue() if b.slots[0] > 4] == []


def test_the_hostile_map_has_55_entries() -> None:
    assert len(hostile_map()) == 55
