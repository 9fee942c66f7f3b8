"""Profiles: the constraint set demand is aggregated by, and its fingerprint.

Owns canonical form: whatever order or repetition the input has, equal constraints give one profile and one text,
and different ones never share it. Resources, counts, groups and clusters are no part of a profile.

Fingerprint: `p=<priority>|ipb=<bucket>|rpb=<bucket>|reqs=<key>:<operator>:<values>;…|spr=<key>:<skew>:<when>;…` and,
only when there are some, `|tol=<key>:<operator>:<value>:<effect>;…` and `|ipm=<millionths of a dollar>`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final, TypeVar

from bigfleet.model.names import INSTANCE_TYPE_LABEL
from bigfleet.model.penalty import BUCKETS, MICRO, PINNED, bucket_dollars, told_dollars
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.spread import Spread, WhenUnsatisfiable
from bigfleet.model.taint import CONDITION_PREFIX, EFFECTS, TOLERATION_OPERATORS, Toleration

# The fingerprint's separators, control characters, and lone surrogates, which no wire can carry.
_FORBIDDEN: Final = re.compile("[,;:|\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_INT32: Final = range(-(2**31), 2**31)
_OPERATORS: Final = {int(operator): operator for operator in Operator}
_WHENS: Final = {int(when): when for when in WhenUnsatisfiable}
# The rest say nothing through their values, which must then not make two profiles out of one.
_WITH_VALUES: Final = (Operator.IN, Operator.NOT_IN, Operator.SAME)


_Part = TypeVar("_Part", Requirement, Spread, Toleration)

CACHED_PARTS: Final = 8192


class ProfileError(ValueError):
    """Constraints that cannot be a profile; the message names the field, its value and what is accepted."""


class Profile:
    """An immutable constraint set in canonical form. Equality and hash are those of the fingerprint."""

    __slots__ = (
        "fingerprint",
        "interruption_bucket",
        "interruption_microdollars",
        "priority",
        "reclamation_bucket",
        "requirements",
        "same",
        "spread",
        "tolerations",
    )

    requirements: tuple[Requirement, ...]
    spread: tuple[Spread, ...]
    priority: int
    interruption_bucket: int
    reclamation_bucket: int
    tolerations: tuple[Toleration, ...]
    # What an interruption costs at most where that is less than the bucket says; 0 where it is not.
    interruption_microdollars: int
    # The co-location requirement, if any; the first in canonical order decides.
    same: Requirement | None
    fingerprint: str

    def __init__(
        self,
        requirements: Iterable[Requirement],
        spread: Iterable[Spread],
        priority: int,
        interruption_bucket: int,
        reclamation_bucket: int,
        tolerations: Iterable[Toleration] = (),
        interruption_microdollars: int = 0,
    ) -> None:
        _check_number("priority", priority, _INT32)
        _check_number("interruption penalty bucket", interruption_bucket, BUCKETS)
        _check_number("reclamation penalty bucket", reclamation_bucket, BUCKETS)
        microdollars = _finer(interruption_bucket, interruption_microdollars) if interruption_microdollars else 0
        wanted = _ordered([_requirement_part(requirement) for requirement in requirements])
        spreads = _ordered([_spread_part(each) for each in spread])
        tolerated = _ordered([_toleration_part(t) for t in tolerations if not t.key.startswith(CONDITION_PREFIX)])
        fingerprint = (
            f"p={priority}|ipb={interruption_bucket:d}|rpb={reclamation_bucket:d}"
            f"|reqs={''.join([text for _, text in wanted])}|spr={''.join([text for _, text in spreads])}"
        )
        if tolerated:
            fingerprint += f"|tol={''.join([text for _, text in tolerated])}"
        if microdollars:
            fingerprint += f"|ipm={microdollars}"
        fix = object.__setattr__
        fix(self, "requirements", asked := tuple([requirement for requirement, _ in wanted]))
        fix(self, "same", next((each for each in asked if each.operator is Operator.SAME), None))
        fix(self, "spread", tuple([each for each, _ in spreads]))
        fix(self, "priority", priority)
        fix(self, "interruption_bucket", int(interruption_bucket))
        fix(self, "reclamation_bucket", int(reclamation_bucket))
        fix(self, "tolerations", tuple([toleration for toleration, _ in tolerated]))
        fix(self, "interruption_microdollars", microdollars)
        fix(self, "fingerprint", fingerprint)

    @property
    def strict_spread(self) -> Spread | None:
        """The one spread that is enforced. Same wins over spread; that is for the reader of both to apply."""
        for spread in self.spread:
            if spread.strict:
                return spread
        return None

    @property
    def pinned_instance_types(self) -> tuple[str, ...]:
        """Instance types the first requirement on that key lists with In; empty when demand is not pinned to any."""
        for requirement in self.requirements:
            if requirement.key == INSTANCE_TYPE_LABEL:
                return requirement.values if requirement.operator is Operator.IN else ()
        return ()

    @property
    def interruption_dollars(self) -> float:
        """What an interruption costs at most; infinite when pinned."""
        return told_dollars(self.interruption_bucket, self.interruption_microdollars)

    @property
    def pinned(self) -> bool:
        """Whether interrupting it is priced as impossible."""
        return self.interruption_bucket == PINNED

    def with_(
        self,
        *,
        requirements: Iterable[Requirement] | None = None,
        spread: Iterable[Spread] | None = None,
        priority: int | None = None,
    ) -> Profile:
        """The same but for what is given."""
        return Profile(
            self.requirements if requirements is None else requirements,
            self.spread if spread is None else spread,
            self.priority if priority is None else priority,
            self.interruption_bucket,
            self.reclamation_bucket,
            self.tolerations,
            self.interruption_microdollars,
        )

    def folded(self) -> Profile:
        """What co-location asks of a single machine: to have the key, with one of the values if any are listed."""
        if self.same is None:
            return self
        return self.with_(
            requirements=[
                Requirement(r.key, Operator.IN if r.values else Operator.EXISTS, r.values)
                if r.operator is Operator.SAME
                else r
                for r in self.requirements
            ]
        )

    def matches(self, attribute: Callable[[str], str | None]) -> bool:
        """Whether a machine with these attributes (key to value or None) meets every requirement."""
        return all(requirement.matches(attribute(requirement.key)) for requirement in self.requirements)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a profile is immutable; {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a profile is immutable; {name} cannot be deleted")

    def __reduce__(self) -> tuple[object, ...]:
        return Profile, (
            self.requirements,
            self.spread,
            self.priority,
            self.interruption_bucket,
            self.reclamation_bucket,
            self.tolerations,
            self.interruption_microdollars,
        )

    def __eq__(self, other: object) -> bool:
        return self.fingerprint == other.fingerprint if isinstance(other, Profile) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"Profile({self.fingerprint})"


def _ordered(parts: list[tuple[_Part, str]]) -> list[tuple[_Part, str]]:
    """Sorted without repetition."""
    return sorted(set(parts)) if len(parts) > 1 else parts


# A fleet has few different constraints and a great many profiles made of them, so each is checked and printed once.
@lru_cache(maxsize=CACHED_PARTS)
def _requirement_part(requirement: Requirement) -> tuple[Requirement, str]:
    canonical = _canonical_requirement(requirement)
    return canonical, f"{canonical.key}:{canonical.operator:d}:{','.join(canonical.values)};"


@lru_cache(maxsize=CACHED_PARTS)
def _spread_part(spread: Spread) -> tuple[Spread, str]:
    canonical = _canonical_spread(spread)
    return canonical, f"{canonical.topology_key}:{canonical.max_skew}:{canonical.when:d};"


@lru_cache(maxsize=CACHED_PARTS)
def _toleration_part(toleration: Toleration) -> tuple[Toleration, str]:
    key, operator, value, effect = canonical = _canonical_toleration(toleration)
    return canonical, f"{key}:{operator}:{value}:{effect};"


def _canonical_requirement(requirement: Requirement) -> Requirement:
    key, number, values = requirement
    _check_text("requirement key", key)
    operator = _OPERATORS.get(number)
    if operator is None:
        raise ProfileError(f"requirement {key!r} has operator {number}; 0 to {max(_OPERATORS)} are accepted")
    if operator not in _WITH_VALUES:
        return Requirement(key, operator)
    values = tuple(sorted(set(values)))
    for value in values:
        if _FORBIDDEN.search(value):
            raise _separator(f"value of requirement {key!r}", value)
    if operator is Operator.SAME:
        if values == ("",):
            raise ProfileError(f"requirement {key!r} Same has only the value ''; name a domain or leave the values out")
    elif not values:
        raise ProfileError(f"requirement {key!r} {operator.text} has no values; at least one is needed")
    return Requirement(key, operator, values)


def _canonical_spread(spread: Spread) -> Spread:
    key, skew, number = spread
    _check_text("topology key of a spread", key)
    _check_number(f"max skew of spread {key!r}", skew, _INT32)
    when = _WHENS.get(number)
    if when is None:
        raise ProfileError(f"spread {key!r} has when-unsatisfiable {number}; 0 to {max(_WHENS)} are accepted")
    return Spread(key, skew, when)


def _canonical_toleration(toleration: Toleration) -> Toleration:
    key, operator, value, effect = toleration
    operator = operator or "Equal"
    if operator not in TOLERATION_OPERATORS:
        raise ProfileError(f"toleration {key!r} has operator {operator!r}; Equal and Exists are accepted")
    if effect and effect not in EFFECTS:
        raise ProfileError(f"toleration {key!r} has effect {effect!r}; empty or {', '.join(EFFECTS)} are accepted")
    if not key and operator != "Exists":
        raise ProfileError("toleration key '' needs the operator Exists; name a key to use Equal")
    if _FORBIDDEN.search(key):
        raise _separator("toleration key", key)
    if operator == "Exists":
        value = ""
    elif _FORBIDDEN.search(value):
        raise _separator(f"value of toleration {key!r}", value)
    return Toleration(key, operator, value, effect)


def _finer(bucket: int, microdollars: int) -> int:
    """A bound below the bucket's own, or 0 where it says the same."""
    bound = bucket_dollars(bucket) * MICRO
    if microdollars == bound:
        return 0
    if bucket == PINNED or not 0 < microdollars < bound:
        raise ProfileError(
            f"interruption_microdollars {microdollars} do not go with bucket {bucket}; "
            f"{'only 0 is' if bucket == PINNED or not bound else f'0 to {bound:.0f} are'} accepted"
        )
    return microdollars


def _check_text(field: str, text: str) -> None:
    if not text:
        raise ProfileError(f"{field} is empty; a label key such as {INSTANCE_TYPE_LABEL} is needed")
    if _FORBIDDEN.search(text):
        raise _separator(field, text)


def _check_number(field: str, number: int, accepted: range) -> None:
    if number not in accepted:
        raise ProfileError(f"{field} {number} is out of range; {accepted[0]} to {accepted[-1]} are accepted")


def _separator(field: str, text: str) -> ProfileError:
    return ProfileError(f"{field} {text!r} contains , ; : | or a control character; text without them is accepted")
