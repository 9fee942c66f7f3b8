"""The bootstrap blob in texts: keeps it out of everything people read.

The blob carries the secret that joins a cluster. Providers and their backends put what they were given into error
texts: whole or cut short, a line of it, escaped, or encoded as clouds take it. Whatever a text has in common with one
of these forms is removed, before the text is kept, logged or shown. Where the blob is not known any more only what
cannot be a part of one is kept: words as people write them. What then still shows is a secret of letters alone that
nothing announces; tokens, keys, hashes and encodings have digits in them.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection
from itertools import groupby
from operator import itemgetter
from urllib.parse import quote

REMOVED = "[bootstrap blob removed]"
# So many characters in common are no chance; of a line or of a word with a digit in it fewer will do.
_COMMON = 12
_SHORTEST = 6
_WORD = re.compile(r"[^\s=:,;\"']+")
WITHHELD = "[withheld]"
# No word is that long, and a name of an error seldom.
_LONGEST = 40
_AROUND = "()[]{}<>.!?`"
# What follows is a secret, whatever it looks like.
_ANNOUNCED = re.compile(r"(?i)(?:token|passw(?:or)?d|passphrase|secret|bearer|credentials?|key)s?\W{1,4}([^\s,;\"']+)")


def redact(text: str, blob: bytes) -> str:
    """The text without any trace of the blob."""
    if len(blob) < _SHORTEST:
        return text
    hidden = bytearray(len(text))
    forms = "\n\n".join(_forms(blob))
    for at in range(len(text) - _COMMON + 1):
        if text[at : at + _COMMON] in forms:
            hidden[at : at + _COMMON] = b"\1" * _COMMON
    for piece in _pieces(blob):
        at = text.find(piece)
        while at >= 0:
            hidden[at : at + len(piece)] = b"\1" * len(piece)
            at = text.find(piece, at + 1)
    return _without(text, hidden, REMOVED)


def plain_words(text: str, known: Collection[str] = ()) -> str:
    """The text without what may be part of a blob nobody knows: words with digits that are not short, words no
    language has, and what is announced as a secret. `known` are words that may stay."""
    hidden = bytearray(len(text))
    found = [match.span() for match in _WORD.finditer(text) if _may_be_secret(match.group(), known)]
    found += [match.span(1) for match in _ANNOUNCED.finditer(text) if match.group(1).strip(_AROUND) not in known]
    for begin, end in found:
        hidden[begin:end] = b"\1" * (end - begin)
    return _without(text, hidden, WITHHELD)


def _may_be_secret(word: str, known: Collection[str]) -> bool:
    if word in known or word.strip(_AROUND) in known:
        return False
    return len(word) > _LONGEST or (len(word) >= _SHORTEST and any(map(str.isdigit, word)))


def _without(text: str, hidden: bytearray, instead: str) -> str:
    return "".join(
        instead if is_hidden else "".join(character for _, character in run)
        for is_hidden, run in groupby(zip(hidden, text, strict=True), key=itemgetter(0))
    )


def _forms(blob: bytes) -> list[str]:
    """How a blob is written: in parts of these it is recognised."""
    plain = blob.decode("utf-8", "replace")
    forms = [
        plain,
        repr(plain),
        repr(blob),
        json.dumps(plain),
        quote(blob),
        quote(blob, safe=""),
        blob.hex(),
        blob.hex().upper(),
    ]
    # Encoded behind something else it looks different, depending on how long that is.
    for shift in range(3):
        encoded = base64.b64encode(bytes(shift) + blob)
        forms += [encoded.decode(), encoded.translate(bytes.maketrans(b"+/", b"-_")).decode()]
    return forms


def _pieces(blob: bytes) -> set[str]:
    """What is short but says enough: lines, and words that are no words."""
    plain = blob.decode("utf-8", "replace")
    lines = {line.strip() for line in plain.splitlines()}
    words = {word for word in _WORD.findall(plain) if any(map(str.isdigit, word))}
    return {piece for piece in lines | words if len(piece) >= _SHORTEST}
