"""What a client remembers of a provider's machines so that an unchanged record costs a hash and not a parse.

The index holds one digest per machine id, never the machine. A record counts as seen only after its batch was consumed:
whoever stops reading in the middle sees the rest again. Some serialisers write map entries in a new order each time, so
a record whose bytes differ is compared once more in canonical form before it is reported as changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from bigfleet.provider.client.frames import FrameError, MachineFrame, machine_id_of
from bigfleet.provider.client.plan import Paging
from bigfleet.wire import provider_pb2

T = TypeVar("T")

_GONE = 0  # digest of a machine that was absent: never equal to a real one, so a return is reported as a change


@dataclass(frozen=True, slots=True)
class Batch(Generic[T]):
    """A slice of one List answer.

    `removed` are ids the provider itself declared gone; `absent` are ids a complete listing did not name, repeated by
    every complete listing until the caller forgets them. `began_ns` is when the List call of this page was sent.
    """

    changed: tuple[T, ...] = ()
    removed: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    unchanged: int = 0
    began_ns: int = 0


@dataclass(slots=True)
class InventoryIndex:
    """The memory of one provider between two Lists: digests, resume cursor, and how the provider pages."""

    cursor: bytes = b""
    paging: Paging = Paging.UNKNOWN
    # Keyed by the id's UTF-8 bytes: decoding 100,000 ids per List would cost as much as hashing their records.
    _digests: dict[bytes, int] = field(default_factory=dict)
    _canonical: dict[bytes, int] = field(default_factory=dict)
    _expected: dict[bytes, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(1 for digest in self._digests.values() if digest != _GONE)

    def __contains__(self, machine_id: str) -> bool:
        return self._digests.get(machine_id.encode(), _GONE) != _GONE

    def forget(self, machine_id: str) -> None:
        """Report this machine again when it is next listed, and stop reporting it as absent."""
        key = machine_id.encode()
        self._digests.pop(key, None)
        self._canonical.pop(key, None)
        self._expected.pop(key, None)

    def expect_change(self, machine_id: str, now_ns: int) -> None:
        """Report this machine from Lists sent after `now_ns`, even if it looks as it did before.

        Between two Lists a machine may go round its whole life and return to the same bytes; a caller that saw the
        acks in between would wait for ever for an end that was suppressed as unchanged.
        """
        self._expected[machine_id.encode()] = now_ns

    def reset(self) -> None:
        """Forget everything: the next List reports every machine."""
        self.cursor = b""
        self.paging = Paging.UNKNOWN
        self._digests.clear()
        self._canonical.clear()
        self._expected.clear()

    def absent_from(self, seen: set[bytes]) -> tuple[str, ...]:
        """Known ids not in `seen`, in id order; each is marked so that its return counts as a change."""
        if len(seen) == len(self._digests):
            return ()  # everything seen is known by now, so nothing known is missing; spares a pass over the fleet
        missing = sorted(self._digests.keys() - seen)
        for key in missing:
            self._digests[key] = _GONE
            self._canonical.pop(key, None)
        return tuple(key.decode() for key in missing)


@dataclass(slots=True)
class FrameScan:
    """Walks one frame against an index. After each slice was consumed, `commit` makes it the index's new truth."""

    frame: MachineFrame
    index: InventoryIndex
    seen: set[bytes] | None
    began_ns: int = 0
    listed: int = 0
    _digests: dict[bytes, int] = field(default_factory=dict)
    _canonical: dict[bytes, int] = field(default_factory=dict)
    _met: list[bytes] = field(default_factory=list)

    def slices(self, records: int) -> Iterator[tuple[list[bytes], int]]:
        """(bytes of changed records, how many were unchanged) per slice of at most `records`."""
        known, expected = self.index._digests, self.index._expected
        while taken := self.frame.take(records):
            self.listed += len(taken)
            keys = [machine_id_of(record) for record in taken]
            if self.seen is not None:
                self.seen.update(keys)
            changed = [
                record
                for key, record in zip(keys, taken, strict=True)
                if (known.get(key) != hash(record) or key in expected) and self._is_news(key, record)
            ]
            yield changed, len(taken) - len(changed)

    def _is_news(self, key: bytes, record: bytes) -> bool:
        """Note a record whose bytes are new; False when only the order of its maps is."""
        before = self.index._digests.get(key, _GONE)
        self._digests[key] = hash(record) or 1
        if key in self.index._expected:
            self._met.append(key)
            # Noted too, or a later return to what was seen before would pass for a mere reordering of maps.
            self._canonical[key] = _canonical_digest(record)
            return True
        if before == _GONE:
            if not _is_text(key):
                raise FrameError(f"a machine id is not valid UTF-8: {key[:40]!r}")
            return True
        self._canonical[key] = _canonical_digest(record)
        return self.index._canonical.get(key) != self._canonical[key]

    def commit(self) -> None:
        """The slices handed out so far were consumed."""
        self.index._digests.update(self._digests)
        self.index._canonical.update(self._canonical)
        # An answer that was under way when our call ended shows the machine as it was before: keep expecting.
        for key in self._met:
            if self.index._expected.get(key, self.began_ns) < self.began_ns:
                del self.index._expected[key]
        self._digests.clear()
        self._canonical.clear()
        self._met.clear()


def _is_text(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def _canonical_digest(record: bytes) -> int:
    try:
        message = provider_pb2.Machine.FromString(record)
    except Exception as error:  # protobuf raises its own DecodeError; the record is the provider's fault either way
        raise FrameError(f"a machine record of {len(record)} bytes does not parse: {error}") from error
    return hash(message.SerializeToString(deterministic=True))
