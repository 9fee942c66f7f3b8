"""The store of a coordinator with several replicas: rows, a leader key under a lease, and a term, all in etcd.

At most one replica can commit: every transaction compares the revision the leader key was written at, so whoever was
replaced writes nothing. Whoever leads also stops serving when its lease may have run out, by its own clock, before
anybody can be elected. A frozen leader is replaced when its lease ends; one whose port refuses connections is dead, and
its key is taken at once.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog
from aetcd.rpc import rpc_pb2

from bigfleet.coordinator.core.records import Row
from bigfleet.coordinator.stores.etcd_calls import EtcdCalls
from bigfleet.coordinator.stores.store import Leadership, NotLeader, StoreError
from bigfleet.transport.address import split

if TYPE_CHECKING:
    from bigfleet.coordinator.server.settings import EtcdSettings

log = structlog.get_logger(__name__)

POLL_SECONDS = 0.2
REFUSALS = 2
BETWEEN_STEALS = 5.0
READ_SECONDS = 5.0
PAGE = 5000
BATCH = 100
# The lease is trusted for this much less than etcd grants: clocks drift, and answers take time to be written.
MARGIN = 0.2


class Seat(NamedTuple):
    """The leader key as it was read, and the term beside it."""

    mod: int
    holder: str
    address: str
    term: int
    term_mod: int
    commit_mod: int
    restoring: bool


class EtcdStore:
    """One replica's part in the election, and its writes while it leads."""

    # etcd takes 128 operations by default, and some are not rows.
    most_rows = 120

    def __init__(self, settings: EtcdSettings, replica: str, address: str, *, insecure: bool = False) -> None:
        self._calls = EtcdCalls(settings, insecure=insecure)
        self._settings = settings
        self._replica = replica
        self._address = address
        self._leader_key = f"{settings.prefix}/leader".encode()
        self._term_key = f"{settings.prefix}/term".encode()
        self._commit_key = f"{settings.prefix}/commit".encode()
        self._restoring_key = f"{settings.prefix}/restoring".encode()
        self._rows = f"{settings.prefix}/rows/"
        self._known = ""
        self._mod = 0
        self._term = 0
        self._commits = 0
        self._commit_mod = 0
        self._lease = 0
        self._deadline = 0.0
        self._lost = asyncio.Event()
        self._resigned = False
        self._stolen_at = -BETWEEN_STEALS
        self._beating: asyncio.Task[None] | None = None

    async def campaign(self) -> Leadership:
        await self._stand_down()
        refusals = 0
        while True:
            if self._resigned:
                await asyncio.Event().wait()
            seat = await self._seat()
            self._known, self._term = seat.address, seat.term
            if seat.restoring:
                raise StoreError(f"{self._settings.prefix} is being restored, or a restore of it was cut short")
            if not seat.mod or self._was_mine(seat):
                if await self._sit(seat):
                    break
                continue
            refusals = refusals + 1 if await _refuses(seat.address) else 0
            if refusals >= REFUSALS and time.monotonic() - self._stolen_at >= BETWEEN_STEALS:
                self._stolen_at = time.monotonic()
                log.warning("the leader's port refuses connections; taking its place", leader=seat.address)
                if await self._sit(seat):
                    break
            await asyncio.sleep(POLL_SECONDS)
        return Leadership(self._term, await self._all())

    async def commit(self, rows: Sequence[Row]) -> None:
        await self._guarded([self._operation(row) for row in rows])

    async def raise_term(self, above: int) -> int:
        term = max(self._term, above) + 1
        await self._guarded([_put(self._term_key, str(term).encode())])
        self._term = term
        return term

    def leading(self) -> bool:
        return bool(self._mod) and time.monotonic() < self._deadline

    def leader(self) -> str:
        return self._address if self.leading() else self._known

    def known_term(self) -> int:
        return self._term

    async def lost(self) -> None:
        await self._lost.wait()

    async def resign(self) -> None:
        self._resigned = True
        mod, self._mod = self._mod, 0
        self._lost.set()
        if mod:
            request = rpc_pb2.TxnRequest(compare=[self._still(mod)], success=[_delete(self._leader_key)])
            try:
                await self._calls.txn(request, READ_SECONDS)
            except StoreError as error:
                log.warning("could not resign; the lease will end by itself", err=str(error))
        await self._stand_down()

    async def restore(self, rows: Sequence[Row], term: int) -> int:
        if await self._all() or (await self._seat()).mod:
            raise StoreError(f"{self._settings.prefix} holds a state or has a leader; restore into an empty prefix")
        # The marker keeps replicas out until every row is there.
        await self._calls.txn(rpc_pb2.TxnRequest(success=[_put(self._restoring_key, b"1")]), READ_SECONDS)
        for begin in range(0, len(rows), BATCH):
            operations = [self._operation(row) for row in rows[begin : begin + BATCH]]
            await self._calls.txn(rpc_pb2.TxnRequest(success=operations), READ_SECONDS)
        ended = [_put(self._term_key, str(term).encode()), _delete(self._restoring_key)]
        await self._calls.txn(rpc_pb2.TxnRequest(success=ended), READ_SECONDS)
        return len(rows)

    async def close(self) -> None:
        await self.resign()
        await self._calls.close()

    async def _seat(self) -> Seat:
        keys = (self._leader_key, self._term_key, self._commit_key, self._restoring_key)
        answer = await self._calls.txn(rpc_pb2.TxnRequest(success=[_range(key) for key in keys]), READ_SECONDS)
        leader, term, commit, restoring = (each.response_range.kvs for each in answer.responses)
        held = json.loads(leader[0].value) if leader else {}
        return Seat(
            mod=leader[0].mod_revision if leader else 0,
            holder=held.get("id", ""),
            address=held.get("address", ""),
            term=int(term[0].value) if term else 0,
            term_mod=term[0].mod_revision if term else 0,
            commit_mod=commit[0].mod_revision if commit else 0,
            restoring=bool(restoring),
        )

    def _was_mine(self, seat: Seat) -> bool:
        """A key of this replica's earlier life: nobody else can listen on its address now."""
        return (seat.holder, seat.address) == (self._replica, self._address)

    async def _sit(self, seat: Seat) -> bool:
        """Take the leader key as it was seen; False when somebody was faster."""
        begin = time.monotonic()
        granted = await self._calls.grant(self._settings.lease_seconds, READ_SECONDS)
        self._lease, term = granted.ID, seat.term + 1
        held = json.dumps({"id": self._replica, "address": self._address, "term": term}).encode()
        request = rpc_pb2.TxnRequest(
            compare=[self._still(seat.mod), _unchanged(self._term_key, seat.term_mod)],
            success=[_put(self._leader_key, held, self._lease), _put(self._term_key, str(term).encode())],
        )
        answer = await self._calls.txn(request, READ_SECONDS)
        if not answer.succeeded:
            taken = await self._seat()
            # Our own write may have happened although its answer was lost, and the repetition found it there.
            if not self._was_mine(taken) or taken.term != term or taken.term_mod != taken.mod:
                await self._stand_down()
                return False
            self._mod = taken.mod
        else:
            self._mod = answer.header.revision
        self._term = term
        self._commit_mod = (await self._seat()).commit_mod
        self._deadline = begin + self._settings.lease_seconds * (1 - MARGIN)
        self._lost.clear()
        self._beating = asyncio.create_task(self._beat())
        return True

    async def _beat(self) -> None:
        """Keep the lease, and see that the key is still ours, until the deadline passes."""
        try:
            while time.monotonic() < self._deadline:
                await asyncio.sleep(self._settings.lease_seconds / 5)
                begin = time.monotonic()
                left = self._deadline - begin
                if left <= 0:
                    break
                ttl = await self._calls.keep_alive(self._lease, left)
                check = rpc_pb2.TxnRequest(compare=[self._still(self._mod)])
                if ttl <= 0 or not (await self._calls.txn(check, left)).succeeded:
                    break
                self._deadline = begin + ttl * (1 - MARGIN)
        except StoreError as error:
            log.warning("the lease could not be kept", err=str(error))
        self._end()

    def _end(self) -> None:
        self._mod = 0
        self._lost.set()

    async def _stand_down(self) -> None:
        beating, self._beating = self._beating, None
        if beating is not None:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
        self._mod = 0
        lease, self._lease = self._lease, 0
        if lease:
            try:
                await self._calls.revoke(lease, 1.0)
            except StoreError:
                # It ends by itself, or has ended already.
                log.debug("lease not revoked")

    async def _guarded(self, operations: list[Any]) -> None:
        """Write, provided that this replica still leads; repeated until etcd answers or the lease may be over.

        Each write also compares and replaces the mark of the one before: a repetition that was held up somewhere finds
        its condition gone, instead of putting old rows over newer ones.
        """
        mod, left = self._mod, self._deadline - time.monotonic()
        if not mod or left <= 0:
            self._end()
            raise NotLeader("leadership lost")
        self._commits += 1
        mark = f"{mod}/{self._commits}".encode()
        request = rpc_pb2.TxnRequest(
            compare=[self._still(mod), _unchanged(self._commit_key, self._commit_mod)],
            success=[*operations, _put(self._commit_key, mark)],
            failure=[_range(self._commit_key)],
        )
        try:
            answer = await self._calls.txn(request, left)
        except StoreError:
            self._end()
            raise
        if answer.succeeded:
            self._commit_mod = answer.header.revision
            return
        found = answer.responses[0].response_range.kvs
        if not found or found[0].value != mark:
            self._end()
            raise NotLeader("leadership lost")
        # It had happened; only its first answer was lost.
        self._commit_mod = found[0].mod_revision

    async def _all(self) -> list[Row]:
        """Every row, at one revision."""
        found: list[Row] = []
        begin, end, revision = self._rows.encode(), _after(self._rows.encode()), 0
        while True:
            request = rpc_pb2.RangeRequest(key=begin, range_end=end, limit=PAGE, revision=revision)
            answer = await self._calls.range(request, READ_SECONDS)
            found.extend(self._read(answer.kvs))
            if not answer.more:
                return found
            revision = revision or answer.header.revision
            begin = answer.kvs[-1].key + b"\0"

    def _read(self, pairs: Sequence[Any]) -> Iterator[Row]:
        for pair in pairs:
            table, _, key = pair.key.decode().removeprefix(self._rows).partition("/")
            yield Row(table, key, pair.value)

    def _operation(self, row: Row) -> Any:
        key = f"{self._rows}{row.table}/{row.key}".encode()
        return _delete(key) if row.value is None else _put(key, row.value)

    def _still(self, mod: int) -> Any:
        return _unchanged(self._leader_key, mod)


def _unchanged(key: bytes, mod: int) -> Any:
    """The key was last written at this revision; 0: it does not exist."""
    return rpc_pb2.Compare(result=rpc_pb2.Compare.EQUAL, target=rpc_pb2.Compare.MOD, key=key, mod_revision=mod)


def _put(key: bytes, value: bytes, lease: int = 0) -> Any:
    return rpc_pb2.RequestOp(request_put=rpc_pb2.PutRequest(key=key, value=value, lease=lease))


def _delete(key: bytes) -> Any:
    return rpc_pb2.RequestOp(request_delete_range=rpc_pb2.DeleteRangeRequest(key=key))


def _range(key: bytes) -> Any:
    return rpc_pb2.RequestOp(request_range=rpc_pb2.RangeRequest(key=key))


def _after(prefix: bytes) -> bytes:
    """The first key behind all those that begin with the prefix."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


async def _refuses(address: str) -> bool:
    """Whether nobody listens there: the process is gone. A frozen one still accepts."""
    try:
        host, port = split(address)
        async with asyncio.timeout(POLL_SECONDS):
            _, writer = await asyncio.open_connection(host or "127.0.0.1", port)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError, ValueError):
        return False
    writer.close()
    return False
