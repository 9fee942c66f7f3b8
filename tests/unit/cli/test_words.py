"""Words instead of codes: every code a shard can send has words, and constraints read like sentences."""

import pytest

from bigfleet.cli import words
from bigfleet.cli.ctl.explaining import folded
from bigfleet.cli.ctl.reading import machine_row
from bigfleet.engine.batches import Shape
from bigfleet.engine.policy import SECOND
from bigfleet.engine.results import Reason
from bigfleet.model.machine import CapacityType
from bigfleet.model.profile import Profile
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import Resources
from bigfleet.model.spread import Spread, WhenUnsatisfiable
from bigfleet.operator.need_codec import need_to_wire
from bigfleet.shard.core.coordination.cross_drains import REASON
from bigfleet.shard.core.state.operations import FORGOTTEN, INTERRUPTION
from bigfleet.shard.read.views import sold_out_for
from bigfleet.wire import capacity_pb2, provider_pb2, shardread_pb2

ZONE = "topology.kubernetes.io/zone"
RACK = "topology.example.org/rack"


def need(*requirements: Requirement, spread: tuple[Spread, ...] = (), bucket: int = 0) -> capacity_pb2.CapacityNeed:
    profile = Profile(requirements, spread, 1000, bucket, 0)
    wanted = Resources.parse({"cpu": "16", "memory": "32Gi"}, round_up=True)
    return need_to_wire(profile, wanted, Resources.parse({"cpu": "2"}, round_up=False), "")


def lost(
    instance_type: str,
    zone: str,
    count: int,
    reason: str,
    winner: str = "",
    state: provider_pb2.MachineState.ValueType = provider_pb2.MACHINE_STATE_CONFIGURED,
) -> shardread_pb2.LostCandidate:
    return shardread_pb2.LostCandidate(
        instance_type=instance_type,
        zone=zone,
        capacity_type=provider_pb2.CAPACITY_TYPE_SPOT,
        state=state,
        count=count,
        reason=reason,
        winner_cluster_id=winner,
        winner_fingerprint="p=2000" if winner and state != provider_pb2.MACHINE_STATE_DRAINING else "",
        winner_priority=2000 if winner else 0,
    )


def explanation(group: str = "", **fields: object) -> shardread_pb2.NeedExplanation:
    made = shardread_pb2.NeedExplanation(reason="Nothing fits.", **fields)  # type: ignore[arg-type]
    made.need.CopyFrom(shardread_pb2.NeedView(cluster_id="c-1", need=need(Requirement(ZONE, Operator.IN, ("a",)))))
    made.need.need.group = group
    made.need.residual_deficit.resources.update({"cpu": "4500m"})
    return made


def test_every_reason_to_be_unmet_has_words_of_its_own() -> None:
    said = [words.unmet_reason(number) for number in shardread_pb2.UnmetReason.values()]
    assert len(set(said)) == len(said)
    assert not [text for text in said if "_" in text or text.startswith("reason ")]


def test_every_reason_of_an_action_has_words() -> None:
    assert set(words.ACTION_REASONS) == {reason.value for reason in Reason} | {INTERRUPTION, FORGOTTEN, REASON}
    told = words.with_reasons_in_words("Speculative → Creating: bought for c-1 (phase1.speculative)")
    assert told == "Speculative → Creating: bought for c-1 (nothing free fits)"


def test_every_capacity_type_is_words() -> None:
    assert [words.capacity_type(kind) for kind in CapacityType if kind] == [
        "bare metal",
        "reserved",
        "on demand",
        "spot",
    ]
    assert words.capacity_type(77) == "kind 77"


@pytest.mark.parametrize("code", words.OUTCOMES)
def test_an_outcome_can_be_asked_for_as_it_is_shown_or_by_its_code(code: str) -> None:
    assert words.outcome_code(words.outcome(code)) == code == words.outcome_code(code)
    assert "_" not in words.outcome(code)


def test_constraints_read_like_sentences() -> None:
    asked = need(
        Requirement(ZONE, Operator.IN, ("a", "b")),
        Requirement("gpu.example.org/kind", Operator.NOT_IN, ("t4",)),
        Requirement(RACK, Operator.SAME),
        spread=(Spread(ZONE, 2, WhenUnsatisfiable.DO_NOT_SCHEDULE),),
    )
    assert words.constraints(asked).split("; ") == [
        "gpu.example.org/kind is not t4",
        f"all in one {RACK}",
        "zone is one of a, b",
        "spread over zone by at most 2",
    ]
    assert words.constraints(need()) == ""


def test_a_constraint_to_drop_is_told_from_a_spread_that_is_spelled_alike() -> None:
    requirement = Requirement(ZONE, Operator.IN, ("1",))
    spread = Spread(ZONE, 1, WhenUnsatisfiable.DO_NOT_SCHEDULE)
    assert words.constraint(f"{ZONE}:1:1;", need(requirement)) == "zone is 1"
    assert words.constraint(f"{ZONE}:1:1;", need(spread=(spread,))) == "spread over zone by at most 1"


def test_penalties_are_dollars() -> None:
    assert words.penalties(need(bucket=13)) == "an interruption costs up to $1,024.00"
    assert words.penalties(need(bucket=27)) == "an interruption must not happen"
    assert words.penalties(need()) == ""


def test_an_explanation_begins_with_what_would_help_and_folds_what_is_alike() -> None:
    made = explanation(
        lost=[
            lost("m.large", "a", 12, "does not meet a requirement: " + ZONE),
            lost("m.large", "b", 4, "does not meet a requirement: " + ZONE),
            lost("r.large", "b", 2, "does not meet a requirement: " + ZONE),
            lost("m.large", "a", 3, "serves a need of higher priority", "c-2"),
            lost("m.large", "a", 1, "drains", "c-3", provider_pb2.MACHINE_STATE_DRAINING),
        ],
        remedy=shardread_pb2.Remedy(
            add_supply=shardread_pb2.AddSupply(instance_type="m.large", domain_key=ZONE, domain_value="a", count=2)
        ),
    )
    [text] = folded([made])
    assert text.splitlines() == [
        "c-1 at priority 1000 wants 16 vCPU, 32 GiB and lacks 4.5 vCPU",
        "  remedy   2 more m.large in zone a",
        "  why      Nothing fits.",
        "  asks     zone is a",
        "  lost     16 × m.large, 2 × r.large in a, b (Configured): does not meet a requirement: zone",
        "  lost     3 × m.large in a (Configured) to c-2 at priority 2000: serves a need of higher priority",
        "  lost     1 × m.large in a (Draining) of c-3: drains",
    ]


def test_needs_that_differ_in_nothing_but_their_group_are_told_once() -> None:
    [text] = folded([explanation(f"job-{number}") for number in range(12)])
    first, *_, last = text.splitlines()
    assert first.endswith("lacks 4.5 vCPU  ×12")
    assert last.startswith("  group    job-0, job-1, ")


def test_remedies_that_differ_are_told_with_their_groups() -> None:
    needs = [explanation(f"job-{number}", remedy=more(8 * (1 + number // 2))) for number in range(3)]
    [text] = folded(needs)
    assert text.splitlines()[1:3] == [
        "  remedy   job-0, job-1: 8 more m.large",
        "  remedy   job-2: 16 more m.large",
    ]


def more(count: int) -> shardread_pb2.Remedy:
    return shardread_pb2.Remedy(add_supply=shardread_pb2.AddSupply(instance_type="m.large", count=count))


def test_a_cluster_that_is_away_is_to_be_connected_again() -> None:
    away = explanation()
    away.need.unmet_reason = shardread_pb2.UNMET_REASON_CLUSTER_DISCONNECTED
    [text] = folded([away])
    assert "  remedy   connect its cluster's operator;" in text


@pytest.mark.parametrize(
    ("search", "reason", "said"),
    [
        ("EXHAUSTED", "PRIORITY_STARVED", "no single change would satisfy it: all were tried"),
        ("GAVE_UP", "PRIORITY_STARVED", "none found in 18 trials; there was more to try"),
        ("DRAINING", "PRIORITY_STARVED", "none needed: machines are being drained for it"),
        ("GAVE_UP", "SUPPLY_BACKED_OFF", "none needed: they are tried again; `actions` tells why they failed"),
    ],
)
def test_that_nothing_helps_that_more_could_be_tried_and_that_a_drain_is_under_way_are_told_apart(
    search: str, reason: str, said: str
) -> None:
    made = explanation(search=shardread_pb2.RemedySearch.Value(f"REMEDY_SEARCH_{search}"), trials=18)
    made.need.unmet_reason = shardread_pb2.UnmetReason.Value(f"UNMET_REASON_{reason}")
    [text] = folded([made])
    assert text.splitlines()[1] == f"  remedy   {said}"


def test_what_is_sold_out_is_told_beside_the_need() -> None:
    shape = Shape("p", "m.large", "a", 3, 1.0, 0.0, Resources({"cpu": 4000}), ())
    small = Shape("p", "m.small", "a", 3, 1.0, 0.0, Resources({"cpu": 500}), ())
    unit = Resources({"cpu": 2000})
    said = list(sold_out_for(Profile((), (), 1, 0, 0), unit, [(shape, 90 * SECOND), (small, 90 * SECOND)], 30 * SECOND))
    assert said == ["m.large in a of p, tried again in 60s"]
    served = shardread_pb2.NeedView(satisfied=True, sold_out=said)
    assert words.why(served) == "sold out: m.large in a of p, tried again in 60s"


def test_a_machine_of_another_shard_is_told_from_ones_own() -> None:
    view = shardread_pb2.MachineView(machine=provider_pb2.Machine(id="m", state=provider_pb2.MACHINE_STATE_IDLE))
    assert machine_row(view)["OWNER"] == ""
    view.owned = True
    assert machine_row(view)["OWNER"] == "this shard"
