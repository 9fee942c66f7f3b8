"""The machines a shard knows: one slotted record each, running counts, and the changes owed to the engine.

A machine's identity is (provider, id). Its *key*, the name the engine, sessions, logs and people use, is the plain
id with the first provider of the configuration and `provider/id` with every other one: it depends on nothing that
happens, so it is the same after every restart. Half a million records must fit beside the engine, so what repeats
(shapes, stamps, cluster names) is interned and what is rare lives elsewhere. Nothing here decides anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

import numpy as np

from bigfleet.engine.batches import NONE, REMOVED, Ids, MachineBatch, Shape, Stamp
from bigfleet.model.machine import MachineState
from bigfleet.shard.core.state.counts import Counts, Standing
from bigfleet.shard.core.state.deadlines import Deadlines

T = TypeVar("T")

NO_STAMP = Stamp()
_COMPACT_AT = 4096

# State, shape, cluster, stamp and not-before of one machine; the middle three as numbers of a batch's own tables.
BatchRow = tuple[int, int, int, int, int]


def batch_of(
    ids: list[str],
    rows: list[BatchRow],
    shapes: Iterable[Shape],
    clusters: Iterable[str],
    stamps: Iterable[Stamp],
    deadlines: list[int] | None = None,
) -> MachineBatch:
    """Machines as the engine takes them: a column for each part of their rows."""
    columns = np.array(rows, np.int64).reshape(len(rows), 5)
    return MachineBatch(
        ids=Ids.of(ids),
        state=columns[:, 0].astype(np.uint8),
        shape=columns[:, 1].astype(np.int32),
        cluster=columns[:, 2].astype(np.int32),
        stamp=columns[:, 3].astype(np.int32),
        not_before=columns[:, 4].copy(),
        shapes=tuple(shapes),
        clusters=tuple(clusters),
        stamps=tuple(stamps),
        deadline=None if deadlines is None else np.array(deadlines, np.int64),
    )


class Record:
    """One machine as the shard sees it; `known` tells whether the engine has been told of it."""

    __slots__ = ("cluster", "error", "home", "host", "id", "key", "known", "owned", "said", "shape", "stamp", "state")

    def __init__(self, key: str, id: str, state: MachineState, shape: Shape, owned: bool) -> None:
        self.key = key
        self.id = id
        self.state = state
        self.shape = shape
        self.owned = owned
        self.host = ""
        self.cluster = ""
        self.stamp = NO_STAMP
        self.error = ""
        # The hash of what its provider says of it, if `error` is that without secrets; 0 if it is not.
        self.said = 0
        # Where it stood when it was first seen: the labels its owner is judged by.
        self.home: tuple[tuple[str, str], ...] = ()
        self.known = False

    @property
    def provider(self) -> str:
        return self.shape.provider

    @property
    def standing(self) -> Standing | None:
        """What it is counted by; None when it does not count here."""
        return (self.state, self.cluster, self.shape, self.stamp, self.host) if self.owned else None

    def __repr__(self) -> str:
        return f"<{self.key} {MachineState(self.state).label} {self.cluster}>"


class Interned(Generic[T]):
    """Equal values become one object. Values nobody uses any more go when the table has doubled."""

    __slots__ = ("_limit", "_values")

    def __init__(self) -> None:
        self._values: dict[T, T] = {}
        self._limit = _COMPACT_AT

    def __call__(self, value: T) -> T:
        return self._values.setdefault(value, value)

    def __iter__(self) -> Iterator[T]:
        return iter(self._values)

    @property
    def crowded(self) -> bool:
        return len(self._values) > self._limit

    def keep(self, live: Iterable[T]) -> None:
        self._values = {value: value for value in live}
        self._limit = max(_COMPACT_AT, 2 * len(self._values))


class Fleet:
    """All records by key, with counts kept as they change."""

    def __init__(self, providers: Sequence[str] = ()) -> None:
        self._providers = tuple(providers)
        self.machines: dict[str, Record] = {}
        self.bound: dict[str, dict[str, None]] = {}
        self.by_provider: Counter[str] = Counter()
        self._counts = Counts()
        self._shapes: Interned[Shape] = Interned()
        self._stamps: Interned[Stamp] = Interned()
        self._names: Interned[str] = Interned()
        # Machines to tell the engine of; machines that are not what they were counted as → what that was.
        self._changed: dict[str, None] = {}
        self._uncounted: dict[str, Standing | None] = {}
        self._gone: dict[str, None] = {}
        self._order: list[str] | None = None
        self._qualified = 0

    @property
    def counts(self) -> Counts:
        """How many machines there are of what, as of now."""
        self._count()
        return self._counts

    def find(self, provider: str, id: str) -> Record | None:
        """The machine with this id at this provider."""
        record = self.machines.get(id)
        if record is not None and record.shape.provider == provider and record.id == id:
            return record
        if not self._qualified:
            return None
        record = self.machines.get(f"{provider}/{id}")
        return record if record is not None and record.shape.provider == provider and record.id == id else None

    def key_for(self, provider: str, id: str) -> str:
        """The key of a machine, whoever was listed first; no two machines have one."""
        if len(self._providers) < 2 or provider not in self._providers:
            return f"{provider}/{id}" if id in self.machines else id
        plain = provider == self._providers[0] and id.partition("/")[0] not in self._providers
        return id if plain else f"{provider}/{id}"

    def shares_id(self, record: Record) -> bool:
        """Whether a provider named before this machine's has a machine of the same id."""
        if record.key == record.id:
            return False
        if record.id in self.machines:
            return True
        names = self._providers
        before = names[: names.index(record.provider)] if record.provider in names else ()
        return any(f"{name}/{record.id}" in self.machines for name in before)

    def namesakes(self, record: Record) -> Iterator[Record]:
        """Machines of other providers with the same id."""
        for provider in self._providers if len(self._providers) > 1 else ():
            other = self.find(provider, record.id)
            if other is not None and other is not record:
                yield other

    def named(self, name: str) -> Record | None:
        """The machine somebody means: by its key, or by `provider/id`, which all of them answer to."""
        record = self.machines.get(name)
        if record is not None:
            return record
        provider, _, id = name.partition("/")
        return self.find(provider, id) if id else None

    def add(
        self,
        key: str,
        id: str,
        state: MachineState,
        shape: Shape,
        *,
        owned: bool,
        cluster: str = "",
        stamp: Stamp = NO_STAMP,
        host: str = "",
        error: str = "",
    ) -> Record:
        record = Record(key, key if key == id else id, state, self._shapes(shape), owned)
        record.cluster = self._names(cluster) if cluster else ""
        record.stamp = stamp if stamp is NO_STAMP else self._stamps(stamp)
        record.host = host
        record.error = error
        self.machines[key] = record
        self._qualified += key != id
        self.by_provider[record.shape.provider] += 1
        if key in self._gone:
            del self._gone[key]
            record.known = True
        self._order = None
        self._join(record.cluster, key)
        self._changed[key] = self._uncounted[key] = None
        return record

    def remove(self, record: Record) -> None:
        key = record.key
        counted = self._uncounted.pop(key) if key in self._uncounted else record.standing
        self._counts.enter([(counted, None)])
        self._changed.pop(key, None)
        self._leave(record.cluster, key)
        del self.machines[key]
        self._qualified -= key != record.id
        self.by_provider[record.shape.provider] -= 1
        if not self.by_provider[record.shape.provider]:
            del self.by_provider[record.shape.provider]
        if record.known:
            self._gone[key] = None
        self._order = None

    def change(
        self,
        record: Record,
        *,
        state: MachineState | None = None,
        cluster: str | None = None,
        stamp: Stamp | None = None,
        shape: Shape | None = None,
        host: str | None = None,
        error: str | None = None,
        owned: bool | None = None,
    ) -> None:
        """Set what is given; counts and the engine's delta follow."""
        key = record.key
        self._changed[key] = None
        if key not in self._uncounted:
            self._uncounted[key] = record.standing
        if state is not None:
            record.state = state
        if cluster is not None and cluster != record.cluster:
            self._leave(record.cluster, key)
            record.cluster = self._names(cluster) if cluster else ""
            self._join(record.cluster, key)
        if stamp is not None:
            record.stamp = stamp if stamp is NO_STAMP else self._stamps(stamp)
        if shape is not None:
            record.shape = self._shapes(shape)
        if host is not None:
            record.host = host
        if error is not None:
            record.error = error
        if owned is not None:
            record.owned = owned

    def touch(self, record: Record) -> None:
        """Tell the engine again although the record is the same (its `not_before` moved)."""
        self._changed[record.key] = None

    @property
    def has_changes(self) -> bool:
        return bool(self._changed or self._gone)

    def shapes(self) -> Iterator[Shape]:
        """Every shape some machine has, and a few that one had lately."""
        return iter(self._shapes)

    def intern_shape(self, shape: Shape) -> Shape:
        return self._shapes(shape)

    def ordered(self) -> list[str]:
        """All keys in order; kept until the set of machines changes."""
        if self._order is None:
            self._order = sorted(self.machines)
        return self._order

    def of_cluster(self, cluster: str) -> list[str]:
        """Machines bound to a cluster, in order."""
        return sorted(self.bound.get(cluster, ()))

    def serves(self, cluster: str) -> bool:
        """Whether the cluster has machines of this shard; those that went to another still name it."""
        return any(self.machines[key].owned for key in self.bound.get(cluster, ()))

    def all(self) -> Iterator[Record]:
        return iter(self.machines.values())

    def compact(self) -> None:
        """Drop interned values that no record uses any more, and counts of what is gone."""
        if self._shapes.crowded:
            self._shapes.keep(record.shape for record in self.machines.values())
        if self._stamps.crowded:
            self._stamps.keep(record.stamp for record in self.machines.values())
        if self._names.crowded:
            self._names.keep(record.cluster for record in self.machines.values())
        self._counts.compact()

    def batch(self, not_before: dict[str, int], deadlines: Deadlines | None = None) -> MachineBatch | None:
        """What changed since the last batch, as columns; None when nothing did."""
        if not self.has_changes:
            return None
        self._count()
        shapes: dict[int, int] = {}
        shape_rows: list[Shape] = []
        clusters: dict[str, int] = {}
        stamps: dict[int, int] = {}
        stamp_rows: list[Stamp] = []
        ids: list[str] = []
        rows: list[BatchRow] = []
        machines = self.machines
        for key in self._changed:
            record = machines[key]
            if not record.owned:
                if record.known:
                    record.known = False
                    self._gone[key] = None
                continue
            record.known = True
            shape = shapes.get(id(record.shape))
            if shape is None:
                shape = shapes[id(record.shape)] = len(shape_rows)
                shape_rows.append(record.shape)
            cluster = clusters.setdefault(record.cluster, len(clusters)) if record.cluster else NONE
            stamp = NONE
            if record.stamp is not NO_STAMP:
                stamp = stamps.get(id(record.stamp), NONE)
                if stamp == NONE:
                    stamp = stamps[id(record.stamp)] = len(stamp_rows)
                    stamp_rows.append(record.stamp)
            ids.append(key)
            rows.append((record.state, shape, cluster, stamp, not_before.get(key, 0)))
        for key in self._gone:
            ids.append(key)
            rows.append((REMOVED, 0, NONE, NONE, 0))
        self._changed = {}
        self._gone = {}
        if not ids:
            return None
        until = None
        if deadlines is not None:
            until = deadlines.of((key, row[0]) for key, row in zip(ids, rows, strict=True))
        return batch_of(ids, rows, shape_rows, clusters, stamp_rows, until)

    def validate(self) -> None:
        """Counts and indexes equal what the records say."""
        recounted, by_provider = Counts(), Counter[str]()
        bound: dict[str, set[str]] = {}
        for record in self.machines.values():
            assert self.find(record.shape.provider, record.id) is record, f"{record} is not found by its identity"
            by_provider[record.shape.provider] += 1
            if record.cluster:
                bound.setdefault(record.cluster, set()).add(record.key)
        recounted.enter([(None, record.standing) for record in self.machines.values()])
        for name in ("states", "cells", "clusters", "dollars", "free"):
            kept, counted = (+getattr(counts, name) for counts in (self.counts, recounted))
            assert kept == counted, f"count {name} is {kept}, the records say {counted}"
        assert self.by_provider == by_provider, "the count by provider is out of step"
        assert {name: set(keys) for name, keys in self.bound.items()} == bound, "the index of bound machines is too"
        assert not self._gone.keys() & self._changed.keys(), "a machine is both changed and gone"

    def _count(self) -> None:
        """Enter what changed since the last time."""
        machines = self.machines
        self._counts.enter((counted, machines[key].standing) for key, counted in self._uncounted.items())
        self._uncounted = {}

    def _join(self, cluster: str, key: str) -> None:
        if cluster:
            members = self.bound.get(cluster)
            if members is None:
                members = self.bound[cluster] = {}
            members[key] = None

    def _leave(self, cluster: str, key: str) -> None:
        if cluster:
            members = self.bound[cluster]
            del members[key]
            if not members:
                del self.bound[cluster]
