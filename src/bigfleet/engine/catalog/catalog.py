"""What repeats, interned: texts, offers, shapes, classes, constraint sets, profiles, stamps; and what matches what.

A class is what demand can tell apart about machines (`docs/engine.md` §1): it depends on the label keys live demand
names, so classes are derived from shapes and derived anew when those keys change. Matching is computed once per
constraint set and class. Numbers handed out here never decide anything: every order goes back to the texts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.batches import Shape
from bigfleet.engine.catalog.classes import ABSENT, HOSTNAME, Classes
from bigfleet.engine.catalog.live_keys import LiveKeys
from bigfleet.engine.catalog.matching import Matching, Numbered
from bigfleet.engine.catalog.odd import OddVectors
from bigfleet.engine.catalog.precedence import Precedence, codes_of
from bigfleet.engine.catalog.stamps import StampTable
from bigfleet.engine.kernels.columns import grown, made, room, widened
from bigfleet.engine.kernels.jit import F8, I4, I8, I8M, U1M
from bigfleet.engine.kernels.texts import TextTable
from bigfleet.engine.kernels.view import View, view
from bigfleet.model.machine import MAX_LABELS
from bigfleet.model.names import HOSTNAME_LABEL
from bigfleet.model.penalty import BUCKETS, MICRO, bucket_dollars
from bigfleet.model.profile import Profile
from bigfleet.model.resources import MAX_MACHINE_UNITS, ORDINARY, Resources
from bigfleet.model.spread import Spread

# Codes of rejected machine records, in the order in which they are looked for.
REJECTIONS = (
    "", "price", "interruption_probability", "id", "duplicate", "state", "structural", "labels", "range",
)  # fmt: skip
BAD_PRICE, BAD_PROBABILITY, BAD_ID, BAD_DUPLICATE, BAD_STATE, BAD_STRUCTURE, BAD_LABELS, BAD_RANGE = range(1, 9)

NO_KEY = -1
UNNAMED = -2


@view
class Profiles(View):
    """One row per profile. `same` and `spread` are live key columns, -1 without, -2 for the hostname."""

    text: I4
    priority: I8
    interruption: I4
    reclamation: I4
    interruption_dollars: F8
    told_dollars: F8
    reclamation_dollars: F8
    con: I4
    same: I4
    spread: I4
    skew: I8
    folded: I4
    pair: I4
    precedence: I4
    refs: I8


@view
class Domains(View):
    """One row per (live key, value): its text and the scratch in which entries count what each domain has."""

    text: I4
    rank: I4
    mark: I8
    machines: I8
    credit_machines: I8
    head: I4
    credit: I8M
    own: I8M
    total: I8M
    list: I4
    meta: I8


_DOLLARS = np.array([bucket_dollars(bucket) for bucket in BUCKETS])
_TOLD = tuple(map(attrgetter, ("priority", "interruption_bucket", "reclamation_bucket", "interruption_microdollars")))
_same, _spread = attrgetter("same"), attrgetter("spread")


class Catalog:
    """Owns everything interned except machine ids, clusters and rows."""

    def __init__(self) -> None:
        self.texts = TextTable()
        self.resources: list[str] = []
        self._resource_index: dict[str, int] = {}
        # Resources that machines publish, or will once there is one, and what rows ask for that nobody has.
        self.published: set[str] = set(ORDINARY)
        self.odd = OddVectors()
        self.amounts: dict[tuple[int, ...], Resources] = {}
        self.live_keys = LiveKeys()
        self.offers: list[tuple[str, str, str, int]] = []
        self._offer_index: dict[tuple[str, str, str, int], int] = {}
        self.shapes: list[Shape] = []
        self._shape_index: dict[Shape, int] = {}
        self._shape_seen: dict[int, tuple[Shape, int]] = {}
        self._bad_shapes: dict[int, int] = {}
        self.shape_class = np.zeros(16, np.int32)
        self.shape_bad = np.zeros(16, np.uint8)
        self.shape_offer = np.zeros(16, np.int32)
        self._class_index: dict[object, int] = {}
        self._class_shape: list[Shape] = []
        self.classes = _empty_classes(1)
        self.matching = Matching(self.texts, self._key_column)
        self.profiles: list[Profile] = []
        # Those that keep together or spread over a key.
        self._choosy: list[int] = []
        self._profile_index: dict[str, int] = {}
        self.p = made(Profiles, 16)
        self._precedence = Precedence()
        self.stamps = StampTable(self.texts)
        self.domain_texts: list[str] = []
        self._domain_index: dict[tuple[str, int], int] = {}
        self.domains = _empty_domains(1)
        self._domain_ranked = 0

    # ---- resources -------------------------------------------------------------------------------------------------

    @property
    def width(self) -> int:
        """Columns of every amounts matrix: resources that demand names and somebody has, at least one."""
        return max(1, len(self.resources))

    def intern_resources(self, names: Iterable[str]) -> bool:
        """True if a resource is new: every amounts matrix must then be widened."""
        before = self.width
        for name in names:
            if name not in self._resource_index:
                self._resource_index[name] = len(self.resources)
                self.resources.append(name)
                for number, shape in enumerate(self._class_shape):
                    if len(self.resources) > self.classes.alloc.shape[1]:
                        self.classes = self.classes._replace(alloc=widened(self.classes.alloc, len(self.resources)))
                    self.classes.alloc[number, len(self.resources) - 1] = shape.allocatable.get(name)
        if self.width > before:
            wide = self.width
            self.classes = self.classes._replace(alloc=widened(self.classes.alloc, wide))
            self.domains = self.domains._replace(
                credit=widened(self.domains.credit, wide),
                own=widened(self.domains.own, wide),
                total=widened(self.domains.total, wide),
            )
            return True
        return False

    def resource(self, name: str) -> int:
        return self._resource_index.get(name, -1)

    def descending(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Resource columns in descending text order: the order in which smallest units are compared."""
        order = sorted(range(len(self.resources)), key=lambda column: self.resources[column].encode(), reverse=True)
        return np.array(order, np.int64)

    def emptied(self, resources: Iterable[str]) -> Catalog:
        """A catalog that knows these resources and what live demand names, and nothing else."""
        fresh = Catalog()
        fresh.intern_resources(resources)
        fresh.live_keys = self.live_keys
        fresh.classes = _empty_classes(fresh.width, max(1, len(fresh.keys)))
        return fresh

    # ---- live keys -------------------------------------------------------------------------------------------------

    @property
    def keys(self) -> list[str]:
        """The label keys that classes are derived by."""
        return self.live_keys.keys

    def live(self, came: Iterable[int], left: Iterable[int] = ()) -> None:
        """Counts profiles in and out of the demand in force."""
        self.live_keys.count(map(self.profiles.__getitem__, came), map(self.profiles.__getitem__, left))

    def validate_keys(self, profiles: list[int]) -> None:
        """Keys and names are counted by the profiles in force."""
        self.live_keys.validate(map(self.profiles.__getitem__, profiles))

    def rekey(self) -> None:
        """Derives classes for the keys live now; every machine must then be placed anew."""
        self.live_keys.renew()
        self._class_index, self._class_shape = {}, []
        self._domain_index, self.domain_texts, self._domain_ranked = {}, [], 0
        self.domains = _empty_domains(self.width)
        self.classes = _empty_classes(self.width, max(1, len(self.keys)))
        self.matching.forget_classes()
        for number, shape in enumerate(self.shapes):
            if not self.shape_bad[number]:
                self.shape_class[number] = self.intern_class(shape, ABSENT)
        self._bind_profile_keys()

    def _bind_profile_keys(self) -> None:
        for number in self._choosy:
            profile = self.profiles[number]
            if profile.same is not None:
                self.p.same[number] = self._key_column(profile.same.key)
            spread = _enforced_spread(profile)
            if spread is not None:
                self.p.spread[number] = self._key_column(spread.topology_key)

    def _key_column(self, key: str) -> int:
        if key == HOSTNAME_LABEL:
            return HOSTNAME
        # A profile no row uses may name a key that is not live; nothing reads it before `rekey` binds it.
        return self.keys.index(key) if key in self.keys else HOSTNAME

    # ---- shapes and classes ----------------------------------------------------------------------------------------

    def intern_shape(self, shape: Shape) -> int:
        # Producers keep their shapes, and hashing one costs more than everything else here.
        seen = self._shape_seen.get(id(shape))
        if seen is not None:
            return seen[1]
        number = self._find_shape(shape)
        if len(self._shape_seen) > 2 * len(self.shapes) + 1024:
            self._shape_seen.clear()
        self._shape_seen[id(shape)] = (shape, number)
        return number

    def intern_shapes(self, shapes: Sequence[Shape]) -> list[int]:
        """Numbers of many shapes; a batch of machines may bring thousands, nearly all of them known."""
        seen = self._shape_seen.get
        return [
            known[1] if (known := seen(id(shape))) is not None else self.intern_shape(shape) for shape in shapes
        ]  # fmt: skip

    def _find_shape(self, shape: Shape) -> int:
        found = self._shape_index.get(shape)
        if found is not None:
            return found
        bad = _shape_problem(shape)
        if bad and bad in self._bad_shapes:
            # One row stands for all bad shapes of a kind: NaN prices differ from themselves and would pile up.
            return self._bad_shapes[bad]
        number = len(self.shapes)
        if bad:
            self._bad_shapes[bad] = number
        else:
            self._shape_index[shape] = number
            self.published.update(shape.allocatable.names())
        self.shapes.append(shape)
        size = room(len(self.shape_class), number + 1)
        self.shape_class = grown(self.shape_class, size)
        self.shape_bad = grown(self.shape_bad, size)
        self.shape_offer = grown(self.shape_offer, size)
        self.shape_bad[number] = bad
        offer = (shape.provider, shape.instance_type, shape.zone, shape.capacity_type)
        self.shape_offer[number] = self._intern_offer(offer)
        self.shape_class[number] = -1 if bad else self.intern_class(shape, ABSENT)
        return number

    def expect(self, shapes: Iterable[Shape]) -> None:
        """Machines of these shapes are coming in this step: what they publish is known to the demand taken over before
        them."""
        for shape in shapes:
            if id(shape) not in self._shape_seen:
                self.published.update(shape.allocatable.names())

    @property
    def offer_index(self) -> Mapping[tuple[str, str, str, int], int]:
        """Numbers of offers (kinds) by what they are."""
        return self._offer_index

    def _intern_offer(self, offer: tuple[str, str, str, int]) -> int:
        number = self._offer_index.setdefault(offer, len(self.offers))
        if number == len(self.offers):
            self.offers.append(offer)
        return number

    def intern_class(self, shape: Shape, named: int) -> int:
        """The class of machines of a shape; `named` is the text of the id when live demand names it."""
        labels = shape.node_labels()
        values = tuple(labels.get(key) for key in self.keys)
        taints = tuple(sorted({taint for taint in shape.taints if taint.blocks}))
        key = (
            shape.provider, shape.instance_type, shape.zone, shape.capacity_type, shape.price, shape.probability,
            shape.allocatable, taints, values, named,
        )  # fmt: skip
        found = self._class_index.get(key)
        if found is not None:
            return found
        number = self._class_index[key] = len(self._class_shape)
        self._class_shape.append(shape)
        c = self.classes
        size = room(len(c.price), number + 1)
        if size > len(c.price):
            c = self.classes = Classes(*(grown(column, size) for column in c))
        c.price[number] = shape.price + 0.0  # -0.0 would be another price in no order but its bits
        c.risk[number] = shape.probability
        for name, column in self._resource_index.items():
            c.alloc[number, column] = shape.allocatable.get(name)
        for column, value in enumerate(values):
            c.value[number, column] = ABSENT if value is None else self.texts.intern(value)
            c.dom[number, column] = ABSENT if value is None else self.intern_domain(self.keys[column], value)
        c.named[number] = UNNAMED if named == ABSENT else named
        c.offer[number] = self._intern_offer((shape.provider, shape.instance_type, shape.zone, shape.capacity_type))
        c.taints[number] = self.matching.intern_taints(taints)
        c.broken[number] = 0
        c.hold[number] = 0
        c.count[number] = 0
        return number

    @property
    def class_count(self) -> int:
        return len(self._class_shape)

    def machines_by_class(self) -> NDArray[np.int64]:
        """Machines of each class (row) in each state (column), as they are now."""
        return self.classes.count[: self.class_count].copy()

    @property
    def class_shapes(self) -> Sequence[Shape]:
        """A shape of each class; another list once classes were derived anew."""
        return self._class_shape

    def class_shape(self, number: int) -> Shape:
        return self._class_shape[number]

    def intern_domain(self, key: str, value: str) -> int:
        text = self.texts.intern(value)
        number = self._domain_index.setdefault((key, text), len(self.domain_texts))
        if number == len(self.domain_texts):
            self.domain_texts.append(value)
            d = self.domains
            size = room(len(d.text), number + 1)
            if size > len(d.text):
                d = self.domains = Domains(*(c if n == "meta" else grown(c, size) for n, c in d._asdict().items()))
            d.text[number] = text
        return number

    def rank_domains(self) -> None:
        """Text ranks of all domains, when some are new."""
        if self._domain_ranked == len(self.domain_texts):
            return
        order = sorted(range(len(self.domain_texts)), key=lambda number: self.domain_texts[number].encode())
        self.domains.rank[order] = np.arange(len(order), dtype=np.int32)
        self._domain_ranked = len(self.domain_texts)

    # ---- profiles --------------------------------------------------------------------------------------------------

    def intern_profile(self, profile: Profile) -> int:
        return self.intern_profiles((profile,))[0]

    def intern_profiles(self, profiles: Sequence[Profile]) -> list[int]:
        """Numbers of many profiles; new ones are taken in together, because one by one costs several times as much."""
        known = self._profile_index
        try:
            return [known[each.fingerprint] for each in profiles]
        except KeyError:
            self._add_profiles({each.fingerprint: each for each in profiles if each.fingerprint not in known})
        return [known[each.fingerprint] for each in profiles]

    def _add_profiles(self, new: dict[str, Profile]) -> None:
        first, added = len(self.profiles), list(new.values())
        last = first + len(added)
        self._profile_index.update(zip(new, range(first, last), strict=True))
        self.profiles += added
        if last > len(self.p.text):
            size = room(len(self.p.text), last)
            self.p = Profiles(*(grown(column, size) for column in self.p))
        p, mine = self.p, slice(first, last)
        texts = self.texts.intern_all(list(new))
        p.text[mine] = texts
        priority, interruption, reclamation, finer = (np.fromiter(map(one, added), np.int64, len(new)) for one in _TOLD)
        p.priority[mine], p.interruption[mine], p.reclamation[mine] = priority, interruption, reclamation
        p.interruption_dollars[mine], p.reclamation_dollars[mine] = _DOLLARS[interruption], _DOLLARS[reclamation]
        p.told_dollars[mine] = np.where(finer > 0, finer / MICRO, p.interruption_dollars[mine])
        p.con[mine] = self.matching.intern_cons(added)
        p.pair[mine] = self.stamps.intern_pairs(texts)
        p.same[mine], p.spread[mine], p.skew[mine] = NO_KEY, NO_KEY, 1
        p.folded[mine] = range(first, last)
        self._precedence.place(codes_of(priority, interruption, reclamation), p.precedence, first)
        together = {number: same.key for number, same in enumerate(map(_same, added), first) if same is not None}
        spreading = [number for number, spread in enumerate(map(_spread, added), first) if spread]
        for number in spreading:
            spread = _enforced_spread(self.profiles[number])
            if spread is not None:
                p.spread[number], p.skew[number] = self._key_column(spread.topology_key), spread.enforced_skew
                self._choosy.append(number)
        if together:
            gangs = list(together)
            p.same[gangs] = list(map(self._key_column, together.values()))
            self._choosy += gangs
            # Interning what they fold into may replace the columns.
            folded = self.intern_profiles([self.profiles[number].folded() for number in gangs])
            self.p.folded[gangs] = folded

    @property
    def match(self) -> U1M:
        """Which constraint set (row) matches which class (column)."""
        return self.matching.match

    @property
    def constraint_count(self) -> int:
        return self.matching.count

    def complete_matches(self) -> bool:
        """Computes what is missing of the match matrix; True if something was."""
        return self.matching.complete(self.classes, self.class_count)

    # ---- checking --------------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Tables and indexes are each other's inverse, and numbers point at what they stand for."""
        numbered: tuple[Numbered, ...] = (
            ("texts", self.texts.texts, self.texts.index),
            ("profiles", [profile.fingerprint for profile in self.profiles], self._profile_index),
            ("offers", self.offers, self._offer_index),
            *self.matching.numbered(),
        )
        for name, table, index in numbered:
            assert dict(zip(table, range(len(table)), strict=True)) == index, f"{name} are not what their index says"
        good = {number for number in range(len(self.shapes)) if not self.shape_bad[number]}
        assert {self._shape_index.get(self.shapes[number]) for number in good} == good, "a shape is not found again"
        assert len(self._class_index) == self.class_count, "classes are not what their index says"
        texts = self.texts.texts
        for number, profile in enumerate(self.profiles):
            assert texts[int(self.p.text[number])] == profile.fingerprint, f"profile {number} has another's text"
            con = self.matching.constraints(int(self.p.con[number]))
            assert con == (profile.requirements, profile.tolerations), f"profile {number} has another's constraints"
            folded = self.profiles[int(self.p.folded[number])]
            assert folded.fingerprint == profile.folded().fingerprint, f"profile {number} folds into another"
        self._precedence.validate(self.profiles, self.p.precedence)
        self.stamps.validate()


def _shape_problem(shape: Shape) -> int:
    if not (shape.price >= 0 and math.isfinite(shape.price)):
        return BAD_PRICE
    if not 0 <= shape.probability <= 1:
        return BAD_PROBABILITY
    if len(shape.labels) > MAX_LABELS:
        return BAD_LABELS
    if any(not 0 <= amount <= MAX_MACHINE_UNITS for _, amount in shape.allocatable.items()):
        return BAD_RANGE
    return 0


def _enforced_spread(profile: Profile) -> Spread | None:
    """Same wins over spread; a spread over hostnames is met by any machines."""
    if not profile.spread or profile.same is not None:
        return None
    strict = (spread for spread in profile.spread if spread.strict and spread.topology_key != HOSTNAME_LABEL)
    return next(strict, None)


def _empty_classes(width: int, keys: int = 1) -> Classes:
    return made(Classes, 16, alloc=width, value=keys, dom=keys, count=9)


def _empty_domains(width: int) -> Domains:
    return made(Domains, 16, credit=width, own=width, total=width)
