"""`bigfleet shard`: the process that runs a part of the fleet. Every setting is a flag and a key of `--config FILE`.

The flags are made from the settings' own table, so that a setting cannot exist in one form only.
"""

from __future__ import annotations

import inspect
from dataclasses import MISSING
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from bigfleet.cli.commands import CommandError, leave
from bigfleet.engine.policy import SECOND
from bigfleet.shard.contract import config
from bigfleet.shard.contract.config import ConfigError
from bigfleet.shard.recording.format import RecordingError
from bigfleet.shard.runtime.audit import AuditError
from bigfleet.shard.runtime.journal import JournalError
from bigfleet.shard.settings import known_settings, parse_size, read_config_file, settings_from
from bigfleet.transport.logs import LogFormat, configure
from bigfleet.transport.process import run_until_signal

HELP = """Run a shard: hold the sessions of many clusters' operators, decide, and act through providers.

    bigfleet shard --fake-provider

A pretend fleet on this machine, nothing to lose. Your own provider on this machine:

    bigfleet shard --provider aws-eu=127.0.0.1:9000

Without certificates a shard listens on 127.0.0.1 and dials nothing beyond this machine. With them, on all addresses:

    bigfleet shard --provider aws-eu=10.0.0.5:9000 --tls-ca certs/ca.crt \\
      --tls-cert certs/shard-shard-0.crt --tls-key certs/shard-shard-0.key

`bigfleetctl certs` makes such files (the certificate carries bigfleet://shard/ID); --insecure does without. Every flag
is also a key of --config FILE, without the dashes in front; flags win. Durations read 250ms, 10s, 1m30s; switches take
=true or =false.

Watch /readyz until every provider has listed its machines, then the metrics. SIGTERM ends it in order.

The first start on a machine compiles the engine's kernels, a minute or two: up to 2,000 machines are decided about
uncompiled meanwhile, larger fleets wait and /readyz says how far it is. `bigfleet warm` compiles ahead; the kernels
are kept in BIGFLEET_KERNEL_CACHE, by default in ~/.cache."""

# Shown first, in this order: what a first deployment sets. Everything else follows by subject.
FIRST = (
    "provider",
    "fake-provider",
    "id",
    "listen",
    "metrics-addr",
    "data-dir",
    "tls-cert",
    "tls-key",
    "tls-ca",
    "dry-run",
)
_FILES_AND_LOGS = "Files and logs"
# The longest beginning that fits a setting's name says where it is shown; a test finds settings that none fits.
PANELS = (
    (
        "Safety",
        ("actuation", "reclaim-cap", "empty-rollup", "rollup", "max-actions", "loss", "ignore", "min-epoch", "return"),
    ),
    ("Serving", ("insecure", "advertise", "shutdown", "max-frame", "hello", "outbox", "available", "forget-cluster")),
    (
        "Providers",
        ("provider", "list", "read", "reconcile", "incremental", "full-list", "transition", "domain", "visibility"),
    ),
    ("Coordinator", ("coordinator",)),
    ("Deciding", ("cycle", "early", "idle", "victim", "reclaim", "park", "reprobe", "escalate")),
    (
        "Placement",
        ("placement", "consolidate", "eviction", "refused", "reopened", "mode", "boot-time", "closed", "empty-hold"),
    ),
    (
        "Acting",
        ("execute", "retry", "create", "configure", "drain", "delete", "breaker", "machine", "stuck", "bootstrap"),
    ),
    (_FILES_AND_LOGS, ("audit", "record", "metrics", "phase")),
    ("Pretending and testing", ("fake", "catalogue", "seed", "local", "archetypes", "failure", "speculative")),
)
_FILES = ("data-dir", "tls-cert", "tls-key", "tls-ca", "audit-log", "record", "catalogue", "archetypes")
_LISTS = (config._texts, config._pairs)

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


class ShardCommand(typer.core.TyperCommand):
    """Reads switches as deployments write them: `--dry-run` and `--dry-run=false`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        switches = {f"--{name}" for name, entry in known_settings().items() if entry.metadata["read"] is config._switch}
        return super().parse_args(ctx, [f"{arg}=true" if arg in switches else arg for arg in args])


def panel(name: str) -> str | None:
    """The heading a setting is shown under; None for those that come first."""
    if name in FIRST:
        return None
    prefixes = [(prefix, heading) for heading, starts in PANELS for prefix in starts if name.startswith(prefix)]
    return max(prefixes, key=lambda found: len(found[0]))[1] if prefixes else "Other"


def _default(entry: Any) -> str:
    value, read = entry.default, entry.metadata["read"]
    if value is MISSING:
        return ""
    if not value:
        return ""
    if read is config.parse_duration:
        seconds = value / SECOND
        unit, size = next(((u, n) for u, n in (("h", 3600), ("m", 60)) if seconds >= n and seconds % n == 0), ("s", 1))
        return f"{seconds / size:g}{unit}"
    if read is parse_size:
        return f"{value >> 20}Mi"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _metavar(name: str, read: object) -> str:
    if name.endswith("addr") or name == "listen":
        return "HOST:PORT"
    if name == "provider":
        return "NAME=HOST:PORT"
    if name in _FILES:
        return "DIR" if name == "data-dir" else "FILE"
    names = {
        config.parse_duration: "DURATION",
        config._switch: "true|false",
        config._whole: "N",
        config._number: "X",
        config._pairs: "KEY=VALUE",
        config._holds: "NAME=KIND:TIME",
        parse_size: "SIZE",
    }
    return names.get(read, "TEXT")  # type: ignore[call-overload, no-any-return]


def _parameter(name: str, entry: Any) -> inspect.Parameter:
    read = entry.metadata["read"]
    many = read in _LISTS or read is config._holds
    default = _default(entry)
    options: dict[str, Any] = {
        "help": _sentence(entry.metadata["help"])
        + (" Repeat for several." if many else "")
        + (f" Default: {default}." if default else ""),
        "metavar": _metavar(name, read),
        "rich_help_panel": panel(name),
        "show_default": False,
    }
    kind: Any = list[str] | None if many else str | None
    return inspect.Parameter(
        name.replace("-", "_"),
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind, typer.Option(f"--{name}", **options)],
    )


def shard(
    *,
    config_file: Path | None,
    log_format: LogFormat,
    log_level: str,
    **flags: Any,
) -> None:
    configure(log_format=log_format, level=log_level)
    try:
        given = read_config_file(config_file) if config_file is not None else {}
        process, core = settings_from({**given, **_given(flags)})
        # Imported late: the engine's kernels take seconds to import, which help and refusals need not wait for.
        from bigfleet.shard.process import run_shard

        code = run_until_signal(lambda stop: run_shard(process, core, stop))
    except (ConfigError, JournalError, AuditError, RecordingError) as error:
        raise CommandError(str(error)) from error
    leave(code)


def _given(flags: dict[str, Any]) -> dict[str, object]:
    """The flags that were typed, as the values a config file would hold."""
    known = known_settings()
    typed: dict[str, object] = {}
    for parameter, value in flags.items():
        if value is None or value == []:
            continue
        name = parameter.replace("_", "-")
        typed[name] = _typed(name, known[name].metadata["read"], value)
    return typed


def _typed(name: str, read: object, value: Any) -> object:
    try:
        if read is config._whole:
            return int(value)
        if read is config._number:
            return float(value)
        if read is config._holds:
            return dict(_hold(name, text) for text in value)
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{name} is {value!r}; a number is accepted") from error
    return value


def _hold(name: str, text: str) -> tuple[str, dict[str, str]]:
    provider, _, holds = text.partition("=")
    pairs = [part.partition(":") for part in holds.split(",")]
    if not provider or not all(colon for _, colon, _ in pairs):
        raise ConfigError(f"{name} is {text!r}; provider=on-demand:5m,spot:60s is accepted")
    return provider, {kind: hold for kind, _, hold in pairs}


_OWN = (
    inspect.Parameter(
        "config_file",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[
            Path | None,
            typer.Option(
                "--config",
                help="YAML file of settings; flags win over it.",
                metavar="FILE",
                rich_help_panel=_FILES_AND_LOGS,
            ),
        ],
    ),
    inspect.Parameter(
        "log_format",
        inspect.Parameter.KEYWORD_ONLY,
        default=LogFormat.AUTO,
        annotation=Annotated[
            LogFormat,
            typer.Option(
                "--log-format",
                help="auto is text on a terminal and json elsewhere.",
                rich_help_panel=_FILES_AND_LOGS,
            ),
        ],
    ),
    inspect.Parameter(
        "log_level",
        inspect.Parameter.KEYWORD_ONLY,
        default="info",
        annotation=Annotated[
            str,
            typer.Option(
                "--log-level",
                help="debug, info, warning or error.",
                metavar="LEVEL",
                rich_help_panel=_FILES_AND_LOGS,
            ),
        ],
    ),
)


def _order(name: str) -> tuple[int, int]:
    """The first ten as listed, then heading by heading."""
    headings = [heading for heading, _ in PANELS]
    heading = panel(name)
    return (-1, FIRST.index(name)) if heading is None else (headings.index(heading) if heading in headings else 99, 0)


_KNOWN = known_settings()
_SETTINGS = tuple(_parameter(name, _KNOWN[name]) for name in sorted(_KNOWN, key=_order))
_PARAMETERS = (*_SETTINGS, *_OWN)
shard.__signature__ = inspect.Signature(_PARAMETERS)  # type: ignore[attr-defined]
shard.__annotations__ = {parameter.name: parameter.annotation for parameter in _PARAMETERS}
shard.__doc__ = HELP
app.command(cls=ShardCommand)(shard)
