"""List and watch of one kind: what changed, in order, without ever withdrawing what was merely not heard of.

A list is read completely (streamed where the server can, in pages where it cannot) before it takes the place of what
was known; then the watch goes on from there. A watch that ends is resumed where it stood; one the server has forgotten
(410) is listed anew beside what is known, which stays until the new list is whole. A first list is handed on as it
comes, because nobody acts before it is complete; of a later one only what changed is held until it is whole.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import structlog

from bigfleet.crd.metadata import ListMeta, ObjectMeta
from bigfleet.operator.kube.client import ApiError, Client, QuietError, Status, UnreachableError

log = structlog.get_logger(__name__)

PAGE = 500
WATCH_SECONDS = (240, 360)
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 30.0
GONE = 410
# Objects handed on before the loop gets a turn: a list of 25,000 must not hold up the session.
AT_ONCE = 250
_FINISHED_INITIAL = "k8s.io/initial-events-end"


class Object(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


K = TypeVar("K", bound=Object)
Told = TypeVar("Told", bound=Object, contravariant=True)


class Sink(Protocol[Told]):
    """Who is told. `seen` comes for new and changed objects, `gone` for those that are no more."""

    def seen(self, given: Told, /) -> None: ...

    def gone(self, key: str, /) -> None: ...


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Page(msgspec.Struct):
    metadata: ListMeta
    items: tuple[msgspec.Raw, ...] = ()


class _Head(msgspec.Struct):
    metadata: ObjectMeta


class _Listing(Generic[K]):
    """A list while it is read: what it holds that is not known yet, and what is known and it has not named so far."""

    def __init__(self, known: Iterable[str]) -> None:
        self.fresh: dict[str, K] = {}
        self.unnamed = set(known)


class _ExpiredError(Exception):
    """The server no longer knows the version we stand at."""


class ListWatch(Generic[K]):
    """One kind at one path, for as long as `run` runs."""

    def __init__(self, client: Client, path: str, kind: type[K], sink: Sink[K], *, name: str = "") -> None:
        self._client = client
        self._path = path
        self._name = name or path.rpartition("/")[2]
        self._decoder: msgspec.json.Decoder[K] = msgspec.json.Decoder(kind)
        self._sink = sink
        # Versions of everything that was handed on, by namespace/name.
        self._known: dict[str, str] = {}
        self._version = ""
        self._streams_lists = True
        self.complete = asyncio.Event()
        self.relists = 0
        self.undecodable = 0
        self.on_event: Callable[[str], None] = lambda what: None

    async def run(self) -> None:
        """For ever; pauses grow while nothing works and start over when something does."""
        pause = FIRST_PAUSE
        while True:
            try:
                if not self._version:
                    await self._list()
                    self.on_event("list")
                    pause = FIRST_PAUSE
                if await self._watch():
                    pause = FIRST_PAUSE
                continue
            except _ExpiredError:
                self._version = ""
                self.relists += 1
                self.on_event("expired")
                continue
            except ApiError as error:
                if error.status == GONE:
                    self._version = ""
                    self.relists += 1
                    self.on_event("expired")
                    continue
                log.warning("watch failed", kind=self._name, err=str(error))
                wait = max(pause, error.retry_after)
            except UnreachableError as error:
                if isinstance(error, QuietError) and self._version:
                    # Nothing happened to this kind, or the connection is dead: opening it anew tells which.
                    log.debug("watch silent", kind=self._name)
                    continue
                log.info("watch lost", kind=self._name, err=str(error))
                wait = pause
            self.on_event("retry")
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))
            pause = min(pause * 2, LONGEST_PAUSE)

    # ------------------------------------------------------------------------------------------------------------ list

    async def _list(self) -> None:
        if self._streams_lists:
            try:
                await self._list_by_watching()
                return
            except ApiError as error:
                if error.status not in (400, 403, 405, 422):
                    raise
                # A server that cannot, or may not, stream a list says so; 403 will be said again by the pages.
                self._streams_lists = False
        listing: _Listing[K] = _Listing(self._known)
        token, version = "", ""
        while True:
            parameters = {"limit": str(PAGE), **({"continue": token} if token else {})}
            page = msgspec.json.decode(await self._client.get(self._path, parameters), type=_Page)
            for raw in page.items:
                self._listed(listing, raw)
            version, token = page.metadata.resource_version, page.metadata.continue_
            if not token:
                break
        await self._swap(listing, version)

    async def _list_by_watching(self) -> None:
        parameters = {
            "watch": "1",
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(*WATCH_SECONDS)),
        }
        listing: _Listing[K] = _Listing(self._known)
        heard = 0
        async with self._client.stream(self._path, parameters) as lines:
            async for line in lines:
                event = _LINES.decode(line)
                if event.type == "BOOKMARK":
                    head = _HEADS.decode(event.object).metadata
                    if head.annotations.get(_FINISHED_INITIAL) == "true":
                        await self._swap(listing, head.resource_version)
                        # The same stream goes on as the watch.
                        async for later in lines:
                            await self._take(later)
                        return
                elif event.type == "ERROR":
                    raise _error(event.object)
                elif event.type == "DELETED":
                    key = _name_of(event.object)
                    listing.fresh.pop(key, None)
                    if key in self._known:
                        listing.unnamed.add(key)
                else:
                    self._listed(listing, event.object)
                    heard += 1
                    if heard % AT_ONCE == 0:
                        await asyncio.sleep(0)
        raise UnreachableError("the stream ended before the list was complete")

    def _listed(self, listing: _Listing[K], raw: msgspec.Raw) -> None:
        """One object of a list that is being read."""
        item = self._decoded(raw)
        # What was readable before it changed is still there, though nobody can say how it looks now.
        key = _name_of(raw) if item is None else key_of(item)
        listing.unnamed.discard(key)
        if item is None or self._known.get(key) == item.metadata.resource_version:
            return
        if self.complete.is_set():
            listing.fresh[key] = item
        else:
            self._hand_on(key, item)

    def _hand_on(self, key: str, item: K) -> None:
        self._known[key] = item.metadata.resource_version
        self._sink.seen(item)

    async def _swap(self, listing: _Listing[K], version: str) -> None:
        """The new list takes the place of what was known. What is gone is told last: a roll-up in between may only
        ask for too much."""
        for told, (key, item) in enumerate(listing.fresh.items(), 1):
            self._hand_on(key, item)
            if told % AT_ONCE == 0:
                await asyncio.sleep(0)
        # In the order in which they came, so that the same histories are told alike.
        for key in [key for key in self._known if key in listing.unnamed]:
            del self._known[key]
            self._sink.gone(key)
        self._version = version
        self.complete.set()

    # ----------------------------------------------------------------------------------------------------------- watch

    async def _watch(self) -> bool:
        """One watch until it ends; whether anything came."""
        parameters = {
            "watch": "1",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(*WATCH_SECONDS)),
        }
        heard = 0
        async with self._client.stream(self._path, parameters) as lines:
            async for line in lines:
                heard += 1
                await self._take(line)
                if heard % AT_ONCE == 0:
                    await asyncio.sleep(0)
        if not heard:
            # A server that ends every watch at once must not be asked in a tight loop.
            await asyncio.sleep(FIRST_PAUSE)
        return bool(heard)

    async def _take(self, line: bytes) -> None:
        event = _LINES.decode(line)
        if event.type == "ERROR":
            raise _error(event.object)
        if event.type == "BOOKMARK":
            self._version = _HEADS.decode(event.object).metadata.resource_version
            return
        if event.type == "DELETED":
            head = _HEADS.decode(event.object)
            key = key_of(head)
            if self._known.pop(key, None) is not None:
                self._sink.gone(key)
            self._version = head.metadata.resource_version
        elif (item := self._decoded(event.object)) is not None:
            self._hand_on(key_of(item), item)
            self._version = item.metadata.resource_version
        self.on_event("event")

    def _decoded(self, raw: msgspec.Raw) -> K | None:
        try:
            return self._decoder.decode(raw)
        except msgspec.MsgspecError as error:
            self.undecodable += 1
            name = _name_of(raw)
            log.warning("object cannot be read and is left out", kind=self._name, object=name, err=str(error))
            return None


def key_of(item: Object) -> str:
    """namespace/name, or the name of what has no namespace."""
    meta = item.metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


_LINES = msgspec.json.Decoder(_Line)
_HEADS = msgspec.json.Decoder(_Head)


def _error(raw: Any) -> Exception:
    status = msgspec.json.decode(raw, type=Status)
    if status.code == GONE or status.reason in ("Expired", "Gone"):
        return _ExpiredError(status.message)
    return ApiError(status.code, status.reason, status.message)


def _name_of(raw: msgspec.Raw) -> str:
    try:
        return key_of(_HEADS.decode(raw))
    except msgspec.MsgspecError:
        return "?"
