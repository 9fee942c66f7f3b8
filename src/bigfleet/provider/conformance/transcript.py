"""What was sent and what came back, kept per behaviour and rendered only when someone must read it.

Bootstrap blobs carry join secrets: they appear here as a byte count, and their text is cut out of anything a
provider echoes, so no report, log or terminal ever shows one.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from bigfleet.provider.conformance.states import state_name

_LONGEST_TEXT = 120
_MOST_ENTRIES = 6
_SHORTEST_SECRET = 10
_SECRET_BYTES = 65536

Scrub = Callable[[str], str]


@dataclass(slots=True)
class Exchange:
    """One call: request, and either an answer or a status code with its text."""

    rpc: str
    request: Message
    code: str = "pending"
    answer: Message | None = None
    details: str = ""

    def render(self, scrub: Scrub) -> str:
        sent = f"sent  {self.rpc} {describe(self.request, scrub)}"
        if self.answer is not None:
            return f"{sent}\nback  {self.code} {describe(self.answer, scrub)}"
        return f"{sent}\nback  {self.code}" + (f" {_shorten(scrub(self.details))!r}" if self.details else "")


class Transcript:
    """The last calls of one behaviour."""

    def __init__(self, keep: int = 60) -> None:
        self._keep = keep
        self._exchanges: list[Exchange] = []
        self._secrets: set[str] = set()

    def add(self, exchange: Exchange) -> None:
        self._secrets |= _fragments(getattr(exchange.request, "bootstrap_blob", b""))
        self._exchanges.append(exchange)
        if len(self._exchanges) > 2 * self._keep:
            del self._exchanges[: -self._keep]

    def tail(self, count: int, about: Exchange | None = None) -> list[str]:
        """The last calls as text, ending with `about` when one call is to blame."""
        upto = self._exchanges
        if about is not None and about in upto:
            upto = upto[: upto.index(about) + 1]
        return [exchange.render(self.scrub) for exchange in upto[-count:]]

    def scrub(self, text: str) -> str:
        """`text` without any trace of a blob this behaviour sent, whole or cut short."""
        return _without_all(text, self._secrets)

    def __len__(self) -> int:
        return len(self._exchanges)


def scrub_blob(text: str, blob: bytes) -> str:
    """`text` without any trace of this blob."""
    return _without_all(text, _fragments(blob))


def describe(message: Message, scrub: Scrub) -> str:
    """A message on one line: scalars as they are, long texts and maps shortened, blobs as a size."""
    return "{" + " ".join(f"{f.name}={_value(f.name, value, scrub)}" for f, value in message.ListFields()) + "}"


def _value(name: str, value: Any, scrub: Scrub) -> str:
    if name == "bootstrap_blob":
        return f"<{len(value)} bytes>"
    if name == "state":
        return state_name(value)
    if name == "states":
        return "[" + ",".join(state_name(v) for v in value) + "]"
    if name == "machines":
        shown = ",".join(f"{m.id}:{state_name(m.state)}" for m in value[:_MOST_ENTRIES])
        return f"[{len(value)}: {shown}{',…' if len(value) > _MOST_ENTRIES else ''}]"
    if name in ("labels", "shard_metadata"):
        return scrub(_map(dict(value)))
    if isinstance(value, Message):
        return describe(value, scrub)
    if isinstance(value, bytes):
        return _shorten(repr(value)[1:])
    if isinstance(value, str):
        return repr(_shorten(scrub(value)))
    return _shorten(scrub(str(value)))


def _map(value: dict[str, str]) -> str:
    size = sum(len(k) + len(v) for k, v in value.items())
    if size > 4 * _LONGEST_TEXT or len(value) > _MOST_ENTRIES:
        return f"<{len(value)} entries, {size} characters>"
    return "{" + ", ".join(f"{k!r}: {v!r}" for k, v in sorted(value.items())) + "}"


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}… ({len(text)} characters)"


def _fragments(blob: bytes) -> set[str]:
    """The shapes in which a blob may come back: whole or by line, as text, escaped, hex or base64."""
    pieces = {line.strip() for line in blob[:_SECRET_BYTES].splitlines()} | {blob[:_SECRET_BYTES]}
    shapes: set[str] = set()
    for piece in pieces:
        if len(piece) >= _SHORTEST_SECRET:
            shapes |= {piece.decode("utf-8", "replace"), repr(piece)[2:-1], piece.hex()}
            shapes.add(base64.b64encode(piece).decode().rstrip("=")[:-1])
    return shapes


def _without_all(text: str, secrets: Iterable[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        text = _without(text, secret)
    return text


def _without(text: str, secret: str) -> str:
    """Cut every passage that begins like the secret, as far as it goes on like it: providers truncate."""
    start = text.find(secret[:_SHORTEST_SECRET])
    while start >= 0:
        end = start
        while end < len(text) and end - start < len(secret) and text[end] == secret[end - start]:
            end += 1
        text = text[:start] + "<bootstrap blob>" + text[end:]
        start = text.find(secret[:_SHORTEST_SECRET], start + 1)
    return text
