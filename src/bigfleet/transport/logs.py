"""Structured logs, the same for every binary: JSON unless a person is watching, and never a secret.

Lines carry `time`, `level`, `msg` and the caller's keys. Lines of the standard `logging` module take the same path.
Redaction is the last step before rendering, so nothing a caller, a library or a traceback adds can slip past it.
"""

import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from enum import StrEnum
from typing import Any, TextIO

import structlog
from google.protobuf.message import Message

from bigfleet.transport.errors import TransportError

REDACTED = "[redacted]"
_SECRET_KEY = re.compile(
    r"(^|[_-])(blob|user_?data|password|passwd|secret|token|credentials?|authorization|private_?key|key_?pem|tls_?key"
    r"|kubeconfig|cookie)$",
    re.IGNORECASE,
)
_SECRET_TEXT = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|(?<=bearer )[\w.~+/=-]{8,}"
    r"|\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"
    r"|\b[a-z0-9]{6}\.[a-z0-9]{16}\b",
    re.DOTALL | re.IGNORECASE,
)
_DEPTH = 6


class LogFormat(StrEnum):
    """How lines look: `json` for machines, `text` for people, `auto` decides by whether a terminal is attached."""

    AUTO = "auto"
    JSON = "json"
    TEXT = "text"


def configure(*, log_format: LogFormat = LogFormat.AUTO, level: str = "info", stream: TextIO | None = None) -> None:
    """Send every log line of the process to `stream` (standard error by default)."""
    stream = stream or sys.stderr
    threshold = logging.getLevelNamesMapping().get(level.upper())
    if threshold is None:
        raise TransportError(f"--log-level {level!r} is not one of debug, info, warning, error")
    as_text = log_format is LogFormat.TEXT or (log_format is LogFormat.AUTO and stream.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
        structlog.processors.EventRenamer("msg"),
    ]
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                redact,
                _text_renderer(stream) if as_text else _json_renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(threshold)
    for chatty in ("grpc", "asyncio"):
        # Their debug lines come with every call and say nothing of ours.
        logging.getLogger(chatty).setLevel(max(threshold, logging.INFO))
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def redact(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace everything that is, or looks like, a secret. A structlog processor."""
    return {key: _redacted(key, value, _DEPTH) for key, value in event.items()}


def _redacted(key: str, value: Any, depth: int) -> Any:
    if _SECRET_KEY.search(key) and value not in (None, "", b""):
        return REDACTED
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        # Bytes on this wire are bootstrap blobs and snapshots; their size is all a log may know.
        return f"[{len(value)} bytes]"
    if isinstance(value, Message):
        # A message prints all its fields, blobs included.
        return f"[{type(value).__name__}]"
    if depth == 0:
        return REDACTED
    if isinstance(value, Mapping):
        return {str(inner): _redacted(str(inner), item, depth - 1) for inner, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_redacted("", item, depth - 1) for item in value]
    return _SECRET_TEXT.sub(REDACTED, value if isinstance(value, str) else str(value))


def _json_renderer(logger: Any, name: str, event: MutableMapping[str, Any]) -> str:
    head = {
        "time": event.pop("time", ""),
        "level": str(event.pop("level", "info")).upper(),
        "msg": event.pop("msg", ""),
    }
    rendered = structlog.processors.JSONRenderer(ensure_ascii=False)(logger, name, {**head, **event})
    return rendered if isinstance(rendered, str) else rendered.decode()


def _text_renderer(stream: TextIO) -> structlog.dev.ConsoleRenderer:
    return structlog.dev.ConsoleRenderer(colors=stream.isatty(), event_key="msg", timestamp_key="time")
