"""A cluster's join secret comes out of no text, however a provider or its cloud wrote it down."""

from __future__ import annotations

import base64
import json
import textwrap
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.model.blob import REMOVED, WITHHELD, plain_words, redact
from bigfleet.provider.client.errors import error_for

TOKEN = "abcdef.0123456789abcdef"
SECRET = f'#!/bin/sh\n# joins\nkubeadm join 10.0.0.1:6443 \\\n  --token "{TOKEN}" --pin sha256:9f\nexit\n'.encode()
AROUND = b"MIME-Version: 1.0\n\n" + SECRET + b"--end--"
FORMS = {
    "whole": SECRET.decode(),
    "as bytes": repr(SECRET),
    "as text": repr(SECRET.decode()),
    "json": json.dumps({"userData": SECRET.decode()}),
    "in a query": quote(SECRET),
    "hex": SECRET.hex(),
    "base64": base64.b64encode(SECRET).decode(),
    "base64 for urls": base64.urlsafe_b64encode(SECRET).decode(),
    "base64 in lines": "\n".join(textwrap.wrap(base64.b64encode(SECRET).decode(), 40)),
    "base64 cut short": base64.b64encode(SECRET).decode()[:-31] + "...",
    "base64 with more around it": base64.b64encode(AROUND).decode(),
    "base64 with more around it, one byte on": base64.b64encode(b"x" + AROUND).decode(),
    "one line": f'--token "{TOKEN}" --pin sha256:9f',
    "one word": TOKEN,
    "most of a word": TOKEN[:-3],
    "cut in front": SECRET.decode()[40:],
}


def traces(text: str) -> list[str]:
    """What of the token a patient reader finds in a text: in clear, or in what an encoding hides."""
    found = [TOKEN[at : at + 12] for at in range(len(TOKEN) - 11) if TOKEN[at : at + 12] in text]
    found += [form for form in (TOKEN.encode().hex(),) if form in text]
    for shift in range(3):
        core = base64.b64encode(bytes(shift) + TOKEN.encode()).decode()[4:-4]
        found += [core[at : at + 12] for at in range(len(core) - 11) if core[at : at + 12] in text]
    return found


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_a_blob_is_found_in_every_usual_form(form: str) -> None:
    """In the provider's own words and in ours."""
    said = f"ssh: exit 1: {form} (see above)"
    assert traces(said.replace("\n", "")), "the form shows the token"
    for text in (redact(said, SECRET), error_for("p", "Configure", "INTERNAL", said, secret=SECRET).detail):
        assert REMOVED in text and not traces(text.replace("\n", "")) and text.startswith("ssh: exit 1:")


def test_ordinary_errors_are_left_alone() -> None:
    assert redact("no route to host", SECRET) == "no route to host"
    assert redact("no route to host", b"") == "no route to host"
    assert redact("quota of 10 machines exceeded in zone a", SECRET) == "quota of 10 machines exceeded in zone a"


@given(blob=st.binary(min_size=12, max_size=60))
def test_no_blob_survives_in_plain_or_encoded_form(blob: bytes) -> None:
    shown = blob.decode("utf-8", "replace").strip()
    text = f"<{shown}|{blob.hex()}|{base64.b64encode(blob).decode()}>"
    cleaned = redact(text, blob)
    assert blob.hex() not in cleaned and base64.b64encode(blob).decode() not in cleaned


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_where_nobody_knows_the_blob_none_of_its_usual_forms_shows(form: str) -> None:
    text = plain_words(f"ssh: exit 1: {form} (see above)")
    assert WITHHELD in text and not traces(text.replace("\n", "")) and text.startswith("ssh: exit 1:")


@pytest.mark.parametrize(
    "text",
    [
        "no route to host",
        "quota of 10 machines exceeded in zone a",
        "host broke",
        "InsufficientInstanceCapacity: try again in 60 s (503)",
        "disk /dev/sda is full; the kubelet did not start",
    ],
)
def test_ordinary_errors_are_left_alone_where_nobody_knows_the_blob(text: str) -> None:
    assert plain_words(text) == text


def test_words_that_are_known_stay_and_what_is_announced_goes() -> None:
    said = "instance i-0123456789 (metal-7001) in eu-west-1a: password: horse, token=staple key battery"
    kept = plain_words(said, {"i-0123456789", "metal-7001"})
    assert kept == (
        f"instance i-0123456789 (metal-7001) in {WITHHELD}: password: {WITHHELD}, token={WITHHELD} key {WITHHELD}"
    )


@given(token=st.from_regex(r"[A-Za-z0-9+/_.-]{5,80}[0-9][A-Za-z0-9+/_.-]{0,80}", fullmatch=True))
def test_no_word_with_a_digit_in_it_survives(token: str) -> None:
    assert token not in plain_words(f"could not join with {token} today")
