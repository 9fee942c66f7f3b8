"""Profiles: documented fingerprints, canonical form, refusals; requirement, taint, spread and group rules."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.model.group import group_string
from bigfleet.model.names import INSTANCE_TYPE_LABEL, ZONE_LABEL
from bigfleet.model.penalty import PINNED, bucket_for
from bigfleet.model.profile import Profile, ProfileError
from bigfleet.model.quantity import parse_quantity
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.spread import Spread, WhenUnsatisfiable
from bigfleet.model.taint import Taint, Toleration, tolerates

RACK = "topology.bigfleet/rack"
WEB = "p=1000|ipb=9|rpb=1|reqs=node.kubernetes.io/instance-type:1:c6i.4xlarge,m6i.4xlarge;|spr="
TRAINER = (
    "p=1000000|ipb=16|rpb=19|reqs=node.kubernetes.io/instance-type:1:a3-highgpu-8g;topology.bigfleet/rack:5:;"
    "|spr=topology.kubernetes.io/zone:1:1;"
)


def _bucket(text: str) -> int:
    return bucket_for(parse_quantity(text).to_float())


def _web(**changes: object) -> Profile:
    arguments: dict[str, object] = {
        "requirements": [Requirement(INSTANCE_TYPE_LABEL, Operator.IN, ("m6i.4xlarge", "c6i.4xlarge"))],
        "spread": [],
        "priority": 1000,
        "interruption_bucket": _bucket("40"),
        "reclamation_bucket": _bucket("0"),
    }
    return Profile(**(arguments | changes))  # type: ignore[arg-type]


def _trainer() -> Profile:
    return Profile(
        [Requirement(RACK, Operator.SAME), Requirement(INSTANCE_TYPE_LABEL, Operator.IN, ("a3-highgpu-8g",))],
        [Spread(ZONE_LABEL, 1, WhenUnsatisfiable.DO_NOT_SCHEDULE)],
        1_000_000,
        _bucket("8000"),
        _bucket("64k"),
    )


def test_documented_fingerprints() -> None:
    assert _web().fingerprint == WEB
    assert _trainer().fingerprint == TRAINER


def test_a_finer_penalty_extends_the_fingerprint_only_where_it_says_more_than_the_bucket() -> None:
    assert _web(interruption_bucket=2, interruption_microdollars=500_000) == _web(interruption_bucket=2)
    cent = _web(interruption_bucket=2, interruption_microdollars=15_625)
    assert cent.fingerprint == _web(interruption_bucket=2).fingerprint + "|ipm=15625"
    assert cent.interruption_dollars == 0.015625
    assert _web(interruption_bucket=2).interruption_dollars == 0.5
    assert pickle.loads(pickle.dumps(cent)) == cent == cent.folded()


@pytest.mark.parametrize(("bucket", "told"), [(2, -1), (2, 500_001), (1, 1), (0, 1), (PINNED, 1)])
def test_a_finer_penalty_that_contradicts_its_bucket_is_refused(bucket: int, told: int) -> None:
    with pytest.raises(ProfileError, match=f"interruption_microdollars {told} do not go with bucket {bucket}; "):
        _web(interruption_bucket=bucket, interruption_microdollars=told)


def test_tolerations_extend_the_fingerprint_only_when_present() -> None:
    condition = Toleration("node.kubernetes.io/not-ready", "Exists", "", "NoExecute")
    assert _web(tolerations=[condition]).fingerprint == WEB
    gpu = Toleration("nvidia.com/gpu", "Exists", "ignored", "NoSchedule")
    team = Toleration("team", "", "ml", "")
    tolerant = _web(tolerations=[team, gpu, gpu, condition])
    assert tolerant.fingerprint == WEB + "|tol=nvidia.com/gpu:Exists::NoSchedule;team:Equal:ml:;"


def test_order_and_repetition_do_not_matter() -> None:
    zone = Requirement("zone", Operator.IN, ("b", "a", "b"))
    rack = Requirement("rack", Operator.NOT_IN, ("r1",))
    one = Profile([zone, rack], [], 0, 0, 0)
    other = Profile([rack, Requirement("zone", Operator.IN, ("a", "b")), zone], [], 0, 0, 0)
    assert one == other
    assert hash(one) == hash(other)
    assert one.requirements == (rack, Requirement("zone", Operator.IN, ("a", "b")))


def test_requirements_on_one_key_sort_by_operator_then_values() -> None:
    profile = Profile(
        [
            Requirement("k", Operator.NOT_IN, ("a",)),
            Requirement("k", Operator.IN, ("b", "c")),
            Requirement("k", Operator.IN, ("a", "z")),
        ],
        [
            Spread("t", 2, WhenUnsatisfiable.DO_NOT_SCHEDULE),
            Spread("t", 1, WhenUnsatisfiable.SCHEDULE_ANYWAY),
            Spread("t", 1, WhenUnsatisfiable.DO_NOT_SCHEDULE),
        ],
        -5,
        0,
        PINNED,
    )
    assert profile.fingerprint == "p=-5|ipb=0|rpb=27|reqs=k:1:a,z;k:1:b,c;k:2:a;|spr=t:1:1;t:1:2;t:2:1;"


def test_values_of_operators_that_ignore_them_are_dropped() -> None:
    assert Profile([Requirement("k", Operator.EXISTS, ("x",))], [], 0, 0, 0) == Profile(
        [Requirement("k", Operator.EXISTS)], [], 0, 0, 0
    )


@pytest.mark.parametrize("bad", [",", ";", ":", "|", "\n", "\x00", "\x7f", "\x85", "\ud800"])
def test_separators_and_control_characters_are_refused_wherever_they_appear(bad: str) -> None:
    text = f"a{bad}b"
    attempts: list[dict[str, object]] = [
        {"requirements": [Requirement(text, Operator.EXISTS)]},
        {"requirements": [Requirement("k", Operator.IN, ("fine", text))]},
        {"requirements": [Requirement("k", Operator.SAME, (text,))]},
        {"spread": [Spread(text, 1, WhenUnsatisfiable.DO_NOT_SCHEDULE)]},
        {"tolerations": [Toleration(text, "Exists")]},
        {"tolerations": [Toleration("k", "Equal", text)]},
    ]
    for changes in attempts:
        with pytest.raises(ProfileError) as refusal:
            _web(**changes)
        assert repr(text) in str(refusal.value)
        assert "contains , ; : | or a control character" in str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"priority": 2**31}, "priority 2147483648 is out of range; -2147483648 to 2147483647 are accepted"),
        ({"interruption_bucket": 28}, "interruption penalty bucket 28 is out of range; 0 to 27 are accepted"),
        ({"reclamation_bucket": -1}, "reclamation penalty bucket -1 is out of range; 0 to 27 are accepted"),
        ({"requirements": [Requirement("", Operator.EXISTS)]}, "requirement key is empty"),
        ({"requirements": [Requirement("k", Operator.IN)]}, "requirement 'k' In has no values"),
        ({"requirements": [Requirement("k", Operator.SAME, ("",))]}, "requirement 'k' Same has only the value ''"),
        ({"requirements": [Requirement("k", 6)]}, "requirement 'k' has operator 6; 0 to 5 are accepted"),  # type: ignore[arg-type]
        ({"spread": [Spread("t", 1, 3)]}, "spread 't' has when-unsatisfiable 3; 0 to 2 are accepted"),  # type: ignore[arg-type]
        ({"spread": [Spread("t", 2**31, WhenUnsatisfiable(1))]}, "max skew of spread 't' 2147483648 is out of range"),
        ({"tolerations": [Toleration("k", "Gt", "1")]}, "toleration 'k' has operator 'Gt'"),
        ({"tolerations": [Toleration("k", "Exists", "", "Never")]}, "toleration 'k' has effect 'Never'"),
        ({"tolerations": [Toleration("", "Equal", "v")]}, "toleration key '' needs the operator Exists"),
    ],
)
def test_refusals_name_field_value_and_what_is_accepted(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ProfileError) as refusal:
        _web(**changes)
    assert message in str(refusal.value)


def test_profiles_are_immutable_and_survive_copying() -> None:
    profile = _trainer()
    with pytest.raises(AttributeError):
        profile.priority = 1
    with pytest.raises(AttributeError):
        del profile.priority
    for twin in (copy.copy(profile), copy.deepcopy(profile), pickle.loads(pickle.dumps(profile))):
        assert twin == profile
        assert twin.requirements == profile.requirements


def test_views_of_a_profile() -> None:
    trainer = _trainer()
    assert trainer.same == Requirement(RACK, Operator.SAME)
    assert trainer.strict_spread == Spread(ZONE_LABEL, 1, WhenUnsatisfiable.DO_NOT_SCHEDULE)
    assert trainer.pinned_instance_types == ("a3-highgpu-8g",)
    plain = trainer.with_(requirements=[each for each in trainer.requirements if each != trainer.same])
    assert plain.same is None
    assert plain.fingerprint == TRAINER.replace("topology.bigfleet/rack:5:;", "")
    assert plain.folded() is plain
    loose = _web(requirements=[Requirement(INSTANCE_TYPE_LABEL, Operator.NOT_IN, ("a",))], interruption_bucket=PINNED)
    assert loose.pinned_instance_types == ()
    assert loose.strict_spread is None
    assert loose.pinned
    assert Profile([], [Spread("t", 1, WhenUnsatisfiable.SCHEDULE_ANYWAY)], 0, 0, 0).strict_spread is None
    assert Spread("t", -3, WhenUnsatisfiable.DO_NOT_SCHEDULE).enforced_skew == 1


def test_only_the_first_requirement_on_instance_type_pins() -> None:
    narrowed = Profile(
        [
            Requirement(INSTANCE_TYPE_LABEL, Operator.IN, ("b",)),
            Requirement(INSTANCE_TYPE_LABEL, Operator.IN, ("a", "b")),
        ],
        [],
        0,
        0,
        0,
    )
    assert narrowed.pinned_instance_types == ("a", "b")


@pytest.mark.parametrize(
    ("operator", "values", "accepted"),
    [
        (Operator.UNSPECIFIED, ("a",), []),
        (Operator.IN, ("a", "b"), ["a"]),
        (Operator.IN, ("",), [""]),
        (Operator.NOT_IN, ("a",), ["", "c", None]),
        (Operator.EXISTS, (), ["", "a", "c"]),
        (Operator.DOES_NOT_EXIST, (), [None]),
        (Operator.SAME, (), ["", "a", "c"]),
        (Operator.SAME, ("a",), ["a"]),
    ],
)
def test_requirement_judges_one_value(operator: Operator, values: tuple[str, ...], accepted: list[str | None]) -> None:
    requirement = Requirement("k", operator, values)
    assert [value for value in ("", "a", "c", None) if requirement.matches(value)] == accepted


def test_operator_text() -> None:
    for operator in (Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST):
        assert Operator.from_text(operator.text) is operator
    assert (Operator.SAME.text, Operator.UNSPECIFIED.text) == ("Same", "")
    for text in ("Gt", "Same", ""):
        with pytest.raises(ValueError, match="In, NotIn, Exists, DoesNotExist are accepted"):
            Operator.from_text(text)


@pytest.mark.parametrize(
    ("toleration", "taint", "tolerated"),
    [
        (Toleration("gpu", "Equal", "a", "NoSchedule"), Taint("gpu", "a", "NoSchedule"), True),
        (Toleration("gpu", "", "a", "NoSchedule"), Taint("gpu", "a", "NoSchedule"), True),
        (Toleration("gpu", "Equal", "b", "NoSchedule"), Taint("gpu", "a", "NoSchedule"), False),
        (Toleration("gpu", "Exists", "", "NoSchedule"), Taint("gpu", "a", "NoSchedule"), True),
        (Toleration("gpu", "Exists", "", "NoExecute"), Taint("gpu", "a", "NoSchedule"), False),
        (Toleration("gpu", "Exists"), Taint("gpu", "a", "NoExecute"), True),
        (Toleration("", "Exists"), Taint("anything", "", "NoExecute"), True),
        (Toleration("cpu", "Exists"), Taint("gpu", "a", "NoSchedule"), False),
        (Toleration("gpu", "Lt", "a"), Taint("gpu", "a", "NoSchedule"), False),
        (Toleration("x", "Exists"), Taint("gpu", "a", "PreferNoSchedule"), True),
        (Toleration("x", "Exists"), Taint("node.kubernetes.io/not-ready", "", "NoExecute"), True),
    ],
)
def test_toleration(toleration: Toleration, taint: Taint, tolerated: bool) -> None:
    assert tolerates([toleration], [taint]) is tolerated


def test_every_blocking_taint_must_be_tolerated() -> None:
    taints = [Taint("a"), Taint("b")]
    assert tolerates([Toleration("a", "Exists"), Toleration("b", "Exists")], taints)
    assert not tolerates([Toleration("a", "Exists")], taints)
    assert not tolerates([], taints)
    assert tolerates([], [])


def test_group_string_as_documented() -> None:
    assert group_string(RACK, {"job": "t7"}, None) == "topology.bigfleet/rack\x00job=t7,;"
    assert group_string(RACK, {"job": "t7"}, [], namespace="research") == (
        "topology.bigfleet/rack\x00job=t7,;\x00research"
    )


def test_group_string_order_and_absence() -> None:
    expressions = [("tier", "NotIn", ["b", "a"]), ("app", "Exists", []), ("tier", "In", ["z"])]
    group = group_string(RACK, {"z": "1", "a": "2"}, expressions)
    assert group == f"{RACK}\x00a=2,z=1,;app Exists ;tier In z;tier NotIn a,b;"
    assert group_string(RACK, None, None) == f"{RACK}\x00"
    assert group_string(RACK, {}, None) == f"{RACK}\x00;"
    assert group_string("", {"job": "t7"}, None, namespace="n") == ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (({"a": "1,b=2"}, None), ({"a": "1", "b": "2"}, None)),
        (({"a": "1,;b In x"}, None), ({"a": "1"}, [("b", "In", ["x"])])),
        (({"a=b": "c"}, None), ({"a": "b=c"}, None)),
        ((None, [("a", "In", ["x,y"])]), (None, [("a", "In", ["x", "y"])])),
        ((None, [("a", "In", ["x;b In y"])]), (None, [("a", "In", ["x"]), ("b", "In", ["y"])])),
        ((None, [("a In", "x", [])]), (None, [("a", "In x", [])])),
        ((None, [("a", "In", [])]), (None, [("a", "In", [""])])),
        ((None, [("a", "Exists", [])]), (None, [("a", "Exists", [""])])),
        (({"a": "1%2c"}, None), ({"a": "1,"}, None)),
        ((None, None), ({}, None)),
    ],
)
def test_different_terms_never_have_one_group_string(one: Any, other: Any) -> None:
    assert group_string(RACK, *one) != group_string(RACK, *other)


def test_topology_keys_and_namespaces_cannot_pass_for_selectors() -> None:
    assert group_string(f"{RACK}\x00a=1,;", None, None) != group_string(RACK, {"a": "1"}, None)
    assert group_string(RACK, {"a": "1"}, None, "n") != group_string(RACK, {"a": "1,;\x00n"}, None)
    assert group_string(RACK, None, None, "n\x00m") != group_string(f"{RACK}\x00", None, None, "m")


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.text("a=,; %", max_size=3), st.text("a=,; %", max_size=3), max_size=2),
            st.lists(
                st.tuples(
                    st.text("a ;", max_size=2),
                    st.sampled_from(["In", "Exists"]),
                    st.lists(st.text("a,; ", max_size=2), max_size=2).map(sorted).map(tuple),
                ),
                max_size=2,
                unique=True,
            )
            .map(sorted)
            .map(tuple),
        ),
        min_size=2,
        max_size=2,
    )
)
def test_group_strings_are_equal_only_for_equal_terms(terms: list[Any]) -> None:
    (labels, expressions), (others, other_expressions) = terms
    same = (labels, expressions) == (others, other_expressions)
    assert (group_string(RACK, labels, expressions) == group_string(RACK, others, other_expressions)) == same
