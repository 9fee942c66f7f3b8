"""What a run is told: target, TLS, profiles, time limits, pool, restart commands and fault selectors.

Parsed once from YAML, TOML or JSON into one typed value; an unknown key or a bad value is a usage error that names it.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import yaml

from bigfleet.duration import UNITS, nanoseconds
from bigfleet.provider.conformance.registry import PROFILES
from bigfleet.yaml_text import read_yaml

EXAMPLE = Path(__file__).with_name("example.yaml")


class UsageError(Exception):
    """The run cannot start as asked: exit code 2."""


class Tls(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Client side of (m)TLS; with an issuer the suite mints one certificate per shard id it plays."""

    ca: str = ""
    cert: str = ""
    key: str = ""
    server_name: str = ""
    issuer_cert: str = ""
    issuer_key: str = ""

    @property
    def enabled(self) -> bool:
        return bool(self.ca or self.cert or self.issuer_cert)


class Timing(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Limits in seconds; the multiplier stretches all of them for backends that take minutes."""

    multiplier: float = 1.0
    create: str | float = 15.0
    configure: str | float = 15.0
    drain: str | float = 30.0
    delete: str | float = 15.0
    call: str | float = 30.0
    boot: str | float = 20.0
    window: str | float = 0.3
    poll: str | float = 0.02


class Pool(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Which machines the run may use, how many, and how many behaviours at once."""

    slots: int = 0
    jobs: int = 12
    match: dict[str, str] = {}


class Fault(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """How one fault is provoked: a cluster id, a machine label `key=value`, a machine id, or a command."""

    cluster: str = ""
    label: str = ""
    machine: str = ""
    command: str = ""


class Faults(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The author's map from failure to trigger; `timeout` is the transition timeout of the lane's provider."""

    timeout: str | float = 2.0
    configure_error: Fault | None = None
    create_error: Fault | None = None
    configure_timeout: Fault | None = None
    configure_slow_ok: Fault | None = None
    drain_error: Fault | None = None
    readiness_block: Fault | None = None
    host_loss: Fault | None = None


class Restart(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """How many Speculative slots a lane boots with, and a start command of its own if it needs one."""

    start: str = ""
    slots: int = 64


class Scale(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The scale lane: inventory size, soak time and latency budgets (seconds)."""

    start: str = ""
    slots: int = 4000
    soak: str | float = 8.0
    get_p99: float = 0.25
    list_p99: float = 2.0
    create_p99: float = 0.25
    full_list: float = 3.0


class Config(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One conformance run."""

    target: str = ""
    provider: str = ""
    profiles: tuple[str, ...] = ("core",)
    tls: Tls = Tls()
    timing: Timing = Timing()
    pool: Pool = Pool()
    cluster: str = "conformance-a"
    other_cluster: str = "conformance-b"
    blob_file: str = ""
    metadata_cap: int = 0
    seed: int = 1
    start: str = ""
    stop: str = ""
    addr: str = ""
    faults: Faults | str | None = None
    fault: Restart = Restart()
    durable: Restart = Restart()
    scale: Scale = Scale()

    def fault_map(self) -> Faults | None:
        """The fault selectors of this run; `faults: reference` names the selectors of the reference fault provider."""
        return REFERENCE_FAULTS if isinstance(self.faults, str) else self.faults

    @property
    def name(self) -> str:
        return self.provider or self.target or "provider"


REFERENCE_FAULTS = Faults(
    timeout=2.0,
    configure_error=Fault(cluster="fault-error"),
    create_error=Fault(label="conformance.fault/create=error"),
    configure_timeout=Fault(cluster="fault-timeout"),
    configure_slow_ok=Fault(cluster="fault-slow-ok"),
    drain_error=Fault(cluster="fault-drain-error"),
    readiness_block=Fault(cluster="fault-readiness-block"),
)

_BLOB = b"#!/bin/sh\n# bigfleet conformance bootstrap secret 6f1d2c9e\n"


def seconds(value: str | float) -> float:
    """A duration in seconds from a number or a text such as `250ms`, `15s`, `10m`."""
    if isinstance(value, int | float):
        if value < 0:
            raise UsageError(f"duration {value} is negative; give seconds or a text such as 15s")
        return float(value)
    found = nanoseconds(value, bare="s")
    if found is None:
        raise UsageError(f"duration {value!r} is not understood; accepted are seconds or texts such as 250ms, 15s, 10m")
    return found / UNITS["s"]


def blob_for(config: Config) -> bytes:
    """The bootstrap blob of this run: the author's file, or a harmless marker."""
    return Path(config.blob_file).read_bytes() if config.blob_file else _BLOB


def load_config(path: Path | None, overrides: dict[str, Any]) -> Config:
    """The file's settings with the command line's on top; every value checked."""
    data = _read(path) if path else {}
    _overlay(data, overrides)
    if isinstance(data.get("profiles"), str):
        data["profiles"] = [p.strip() for p in data["profiles"].split(",") if p.strip()]
    try:
        config = msgspec.convert(data, Config, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"config: {error}") from error
    _check(config)
    return config


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"config file {path} cannot be read: {error.strerror}") from error
    try:
        if path.suffix == ".toml":
            return tomllib.loads(text)
        data = json.loads(text, object_pairs_hook=_once) if path.suffix == ".json" else read_yaml(text)
    except (ValueError, yaml.YAMLError) as error:
        raise UsageError(f"config file {path} is not valid {path.suffix.lstrip('.') or 'yaml'}: {error}") from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise UsageError(f"config file {path} must hold a mapping, not {type(data).__name__}")
    return data


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, whose reader takes the last of two equal keys."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name in found if sum(name == each for each, _ in pairs) > 1)
        raise ValueError(f"key {twice!r} is given twice; give it once")
    return found


def _overlay(data: dict[str, Any], overrides: dict[str, Any]) -> None:
    for key, value in overrides.items():
        if isinstance(value, dict):
            section = data.setdefault(key, {})
            if not isinstance(section, dict):
                raise UsageError(f"config: {key} must be a mapping")
            _overlay(section, value)
        elif value is not None:
            data[key] = value


def _check(config: Config) -> None:
    if not config.profiles:
        raise UsageError(f"no profile given; accepted are {', '.join(PROFILES)}")
    for profile in config.profiles:
        if profile not in PROFILES:
            raise UsageError(f"profile {profile!r} is unknown; accepted are {', '.join(PROFILES)}")
    if "cloud" in config.profiles and "bare-metal" in config.profiles:
        raise UsageError("profiles cloud and bare-metal exclude each other: one promises Delete, the other refuses it")
    if isinstance(config.faults, str) and config.faults != "reference":
        raise UsageError(f"faults: {config.faults!r} is not accepted; give a map of selectors or the word reference")
    if not config.target and not config.start:
        raise UsageError("nothing to test: give --target HOST:PORT or a start command in the config")
    if config.timing.multiplier <= 0:
        raise UsageError(f"timing.multiplier {config.timing.multiplier} must be greater than 0")
    if bool(config.tls.cert) != bool(config.tls.key):
        raise UsageError("tls: cert and key must be given together")
    if bool(config.tls.issuer_cert) != bool(config.tls.issuer_key):
        raise UsageError("tls: issuer_cert and issuer_key must be given together")
    if config.blob_file and not Path(config.blob_file).is_file():
        raise UsageError(f"blob_file {config.blob_file} is not a file")
    for field in ("create", "configure", "drain", "delete", "call", "boot", "window", "poll"):
        seconds(getattr(config.timing, field))
    seconds(config.scale.soak)
    if fault_map := config.fault_map():
        seconds(fault_map.timeout)
