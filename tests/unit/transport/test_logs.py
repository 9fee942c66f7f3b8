"""What log lines look like, and that no secret survives into one."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from google.protobuf.wrappers_pb2 import BytesValue

from bigfleet.transport.errors import TransportError
from bigfleet.transport.logs import REDACTED, LogFormat, configure

PRIVATE_KEY = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIA\n-----END EC PRIVATE KEY-----"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def line(stream: io.StringIO) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(stream.getvalue())
    return decoded


def test_json_away_from_a_terminal_with_the_documented_words(stream: io.StringIO) -> None:
    configure(stream=stream)
    structlog.get_logger("x").info("shard started", execute_workers=4, queue_capacity=8)
    decoded = line(stream)
    assert decoded.pop("time").endswith("Z")
    assert decoded == {"level": "INFO", "msg": "shard started", "execute_workers": 4, "queue_capacity": 8}
    assert list(line(stream))[:3] == ["time", "level", "msg"]


def test_text_on_request(stream: io.StringIO) -> None:
    configure(stream=stream, log_format=LogFormat.TEXT)
    structlog.get_logger("x").warning("reconcile failed", provider="p1")
    assert "reconcile failed" in stream.getvalue()
    assert "provider=p1" in stream.getvalue()


def test_level_filters_and_unknown_levels_are_refused(stream: io.StringIO) -> None:
    configure(stream=stream, level="warning")
    structlog.get_logger("x").info("quiet")
    logging.getLogger("library").info("quiet too")
    assert stream.getvalue() == ""
    with pytest.raises(TransportError, match="'loud' is not one of debug"):
        configure(stream=stream, level="loud")


def test_lines_of_the_standard_library_take_the_same_path(stream: io.StringIO) -> None:
    configure(stream=stream)
    logging.getLogger("library").error("handshake with %s", PRIVATE_KEY)
    assert line(stream)["msg"] == f"handshake with {REDACTED}"
    assert line(stream)["level"] == "ERROR"


@pytest.mark.parametrize(
    "key",
    ["blob", "bootstrap_blob", "user_data", "token", "bootstrap-token", "password", "private_key", "tls_key",
     "Authorization", "secret", "credentials", "kubeconfig"],
)  # fmt: skip
def test_keys_that_name_secrets_are_redacted(stream: io.StringIO, key: str) -> None:
    configure(stream=stream)
    structlog.get_logger("x").info("m", **{key: "hunter2-hunter2"})
    assert "hunter2" not in stream.getvalue()
    assert line(stream)[key] == REDACTED


@pytest.mark.parametrize(
    ("value", "secret"),
    [
        (f"cannot parse {PRIVATE_KEY}", "MHcCAQEEIA"),
        ("-----BEGIN PRIVATE KEY-----\nMHcCAQEEIA cut off", "MHcCAQEEIA"),
        ("header Authorization: Bearer abcdefgh12345678", "abcdefgh12345678"),
        ("kubeadm join --token abcdef.0123456789abcdef", "0123456789abcdef"),
        ("eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln", "eyJzdWIiOiJ4In0"),
        (b"#cloud-config hunter2", "hunter2"),
        (bytearray(b"hunter2"), "hunter2"),
        (BytesValue(value=b"hunter2"), "hunter2"),
        ({"spec": {"blob": "hunter2"}}, "hunter2"),
        ([{"machine": "m", "token": "hunter2"}], "hunter2"),
        (ValueError(f"bad key {PRIVATE_KEY}"), "MHcCAQEEIA"),
    ],
)
def test_values_that_are_secrets_are_redacted(stream: io.StringIO, value: object, secret: str) -> None:
    configure(stream=stream)
    structlog.get_logger("x").info("configure", detail=value)
    assert secret not in stream.getvalue()
    assert line(stream)["msg"] == "configure"


def test_tracebacks_are_redacted(stream: io.StringIO) -> None:
    configure(stream=stream)
    try:
        raise RuntimeError(f"cannot load {PRIVATE_KEY}")
    except RuntimeError:
        structlog.get_logger("x").exception("component exited")
    assert "RuntimeError" in stream.getvalue()
    assert "MHcCAQEEIA" not in stream.getvalue()


def test_ordinary_fields_survive(stream: io.StringIO) -> None:
    configure(stream=stream)
    fields = {"machine": "i-0abc", "fingerprint": "k:1|2", "key": "zone", "tokens": 5, "instruction_id": "r-1.2",
              "domain": "eu-1.example.org", "epoch": 7, "cost": 0.5, "top": ["a", "b"], "err": None}  # fmt: skip
    structlog.get_logger("x").info("m", **fields)
    decoded = line(stream)
    assert {name: decoded[name] for name in fields} == fields
