"""Keeps the bootstrap blob out of everything people read.

The blob carries the secret that joins a cluster. Backends put what they were given into error texts, so every text
that leaves a Configure is searched for the blob in the forms it usually takes: whole, line by line, escaped, encoded.
"""

from __future__ import annotations

import base64

REMOVED = "[bootstrap blob removed]"
_SHORTEST = 6


def redact(text: str, blob: bytes) -> str:
    """The text without any trace of the blob."""
    for form in _forms(blob):
        if form in text:
            text = text.replace(form, REMOVED)
    return text


def _forms(blob: bytes) -> list[str]:
    plain = blob.decode("utf-8", "replace")
    pieces = {plain, plain.strip(), *(line.strip() for line in plain.splitlines())}
    pieces |= {word for word in plain.split() if len(word) >= 2 * _SHORTEST}
    pieces |= {repr(piece)[1:-1] for piece in set(pieces)} | {repr(blob)[2:-1], blob.hex()}
    pieces |= {base64.b64encode(blob).decode(), base64.urlsafe_b64encode(blob).decode()}
    return sorted((piece for piece in pieces if len(piece) >= _SHORTEST), key=len, reverse=True)
