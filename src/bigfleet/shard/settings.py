"""What a shard process is told besides what its core decides by: addresses, files, certificates, providers.

One mapping of settings, from `--config FILE` with the given flags on top, becomes two typed values here; a key neither
of them knows is an error. Combinations that cannot work are refused before anything starts.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import yaml

from bigfleet.provider.client import ProviderEndpoint
from bigfleet.shard.contract import config
from bigfleet.shard.contract.config import ConfigError, ShardConfig, duration, option_name, read_settings, setting
from bigfleet.transport.address import default_listen
from bigfleet.transport.certificates import PLAINTEXT, TlsFiles
from bigfleet.yaml_text import read_yaml

# What the core is told by the shell, and so nobody else may set.
DERIVED = frozenset({"providers", "with-coordinator"})
DEFAULT_PROVIDER = "default"
FAKE_PROVIDER = "fake"
# Where a shard listens that was told neither where nor with which certificates: plaintext must not leave this machine.
PORT = 7780
PRETENDED = (
    "seed-machines",
    "seed-speculative",
    "seed-spot",
    "seed-configured-per-cluster",
    "archetypes",
    "failure-rate-per-sec",
    "speculative-shed-at-seconds",
    "catalogue",
)
_SIZE = re.compile(r"(\d+)([KMG]i)?")
_SIZES = {None: 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


def parse_size(name: str, value: object) -> int:
    """Bytes of `256Mi`, `64Ki`, `1000`."""
    match = _SIZE.fullmatch(str(value))
    if match is None:
        raise ConfigError(f"{name} is {value!r}; a size such as 256Mi, 64Ki or 1000 is accepted")
    return int(match[1]) * _SIZES[match[2]]


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """The shell's share of the settings. Durations are nanoseconds, sizes bytes."""

    listen: str = setting(
        config._text, ":7780", "address for operators and tools (gRPC); without certificates 127.0.0.1:7780"
    )
    metrics_addr: str = setting(config._text, ":8780", "address of /metrics, /healthz and /readyz (HTTP); 0 is off")
    data_dir: str = setting(config._text, "./data", "holds the journal; one shard each, made if missing")
    min_epoch: int = setting(
        config._whole, 0, "the epoch is no less than this; for a clock that once ran ahead and a lost data-dir"
    )
    insecure: bool = setting(config._switch, False, "allow plaintext beyond this machine; nobody is identified then")
    tls_cert: str = setting(config._text, "", "own certificate, PEM; re-read when it changes")
    tls_key: str = setting(config._text, "", "key of tls-cert, PEM; re-read when it changes")
    tls_ca: str = setting(config._text, "", "authority that peers are verified against, PEM")
    shutdown_grace: int = duration(10, "how long open streams and calls may take to end")
    hello_timeout: int = duration(10, "a stream that has not said Hello by then is ended")
    max_frame_bytes: int = setting(parse_size, 64 << 20, "largest frame an operator may send")

    provider: tuple[str, ...] = setting(config._texts, (), "a provider as name=host:port or name@region=host:port")
    provider_addr: str = setting(config._text, "", "address of the only provider; short for provider default=ADDR")
    provider_identity: bool = setting(
        config._switch, False, "providers must show a certificate of bigfleet://provider/NAME"
    )
    list_timeout: int = duration(120, "deadline of one List call")
    read_timeout: int = duration(30, "deadline of one Get call")
    list_page_size: int = setting(config._whole, 25_000, "machines asked for in one List call")
    fake_provider: bool = setting(config._switch, False, "pretend: an in-process provider whose machines do not exist")
    catalogue: str = setting(config._text, "", "catalogue file of the pretend provider; empty is the built-in one")
    seed_machines: int = setting(config._whole, 0, "pretend provider: only so many idle machines")
    seed_speculative: int = setting(config._whole, 0, "pretend provider: only so many on-demand slots")
    seed_spot: int = setting(config._whole, 0, "pretend provider: only so many spot slots")
    seed_configured_per_cluster: int = setting(
        config._whole, 0, "pretend provider: so many machines bound from the start to each kwok-cluster-N of this shard"
    )
    seed_cluster_total: int = setting(config._whole, 0, "pretend provider: how many kwok-cluster-N there are")
    seed_cluster_stride: int = setting(
        config._whole, 0, "pretend provider: number of shards; this one has every N of that remainder, by its id"
    )
    archetypes: str = setting(config._text, "", "pretend provider: YAML file with the kinds of machines to seed")
    seed_density_multiplier: int = setting(
        config._whole, 1, "pretend provider: seeded machines hold so many times as much"
    )
    failure_rate_per_sec: float = setting(
        config._number, 0.0, "pretend provider: hosts break so often, each per second"
    )
    speculative_shed_at_seconds: int = setting(
        config._whole, 0, "pretend provider: withdraw unused slots after so many seconds"
    )
    speculative_shed_multiplier: float = setting(
        config._number, 1.0, "pretend provider: the share of unused slots that is kept then, between 0 and 1"
    )

    coordinator_addr: str = setting(config._text, "", "coordinator, several with commas; empty runs without one")
    advertise_addr: str = setting(config._text, "", "address others reach this shard at; empty is the listen address")
    coordinator_heartbeat_interval: int = duration(10, "time between two reports to the coordinator")

    audit_log: str = setting(config._text, "", "append every action to this JSONL file; empty is off")
    audit_log_max_bytes: int = setting(parse_size, 256 << 20, "rotate the audit log at this size")
    audit_log_keep: int = setting(config._whole, 5, "rotated audit logs to keep")
    record: str = setting(config._text, "", "write all engine inputs to this new file, for replay; empty is off")
    phase_attribution_log: bool = setting(
        config._switch, False, "every 20th cycle, log which demand stayed short and what was given up meanwhile"
    )
    metrics_warmup_cycles: int = setting(config._whole, 0, "cycles at the start that no histogram counts")

    def __post_init__(self) -> None:
        if not self.listen:
            raise ConfigError("listen is empty; host:port, :port or unix:/path is accepted")
        _ = self.tls  # refuses a set of certificate files that is not whole
        if self.list_page_size < 1:
            raise ConfigError("list-page-size is 0; at least 1 is accepted")
        if self.provider_addr and self.provider:
            raise ConfigError("provider-addr and provider are both set; use provider name=host:port for every provider")
        if self.fake_provider and (self.provider or self.provider_addr):
            raise ConfigError("fake-provider and a real provider are both set; a shard uses one or the other")
        pretended = [name for name in PRETENDED if getattr(self, name.replace("-", "_"))]
        if pretended and not self.fake_provider:
            raise ConfigError(f"{pretended[0]} is set without fake-provider, which it belongs to")
        if self.seed_density_multiplier < 1:
            raise ConfigError(f"seed-density-multiplier is {self.seed_density_multiplier}; at least 1 is accepted")
        if not (self.fake_provider or self.provider or self.provider_addr):
            raise ConfigError(
                "no provider is set; give provider name=host:port, or fake-provider for a pretend one without machines"
            )

    @property
    def tls(self) -> TlsFiles:
        return TlsFiles(self.tls_cert, self.tls_key, self.tls_ca) if self._any_tls else PLAINTEXT

    @property
    def coordinators(self) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.coordinator_addr.split(",") if part.strip())

    def endpoints(self) -> tuple[ProviderEndpoint, ...]:
        """The real providers, in the order given."""
        texts = (f"{DEFAULT_PROVIDER}={self.provider_addr}",) if self.provider_addr else self.provider
        made = [ProviderEndpoint.parse(text, tls=self.tls, insecure=self.insecure) for text in texts]
        if self.provider_identity:
            made = [replace(endpoint, identity=endpoint.name) for endpoint in made]
        names = [endpoint.name for endpoint in made]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(f"provider {twice!r} is given twice; names must be unique")
        return tuple(made)

    def provider_names(self) -> tuple[str, ...]:
        return (FAKE_PROVIDER,) if self.fake_provider else tuple(endpoint.name for endpoint in self.endpoints())

    @property
    def _any_tls(self) -> bool:
        return bool(self.tls_cert or self.tls_key or self.tls_ca)


def settings_from(given: Mapping[str, object]) -> tuple[ProcessSettings, ShardConfig]:
    """Both halves of the settings; ConfigError names what is wrong."""
    known = known_settings()
    for name in given:
        if name not in known:
            raise ConfigError(f"setting {name!r} is unknown; {_meant(str(name), sorted(known))}")
    process_names = {option_name(entry) for entry in fields(ProcessSettings)}
    process = read_settings(ProcessSettings, {name: value for name, value in given.items() if name in process_names})
    if "listen" not in given:
        process = replace(process, listen=default_listen(PORT, secured=process.tls.enabled or process.insecure))
    core = {name: value for name, value in given.items() if name not in process_names}
    core |= {"providers": list(process.provider_names()), "with-coordinator": bool(process.coordinators)}
    return process, read_settings(ShardConfig, core)


def _meant(name: str, known: list[str]) -> str:
    like = difflib.get_close_matches(name.removeprefix("--").replace("_", "-"), known)
    return f"did you mean {' or '.join(like)}?" if like else f"accepted are {', '.join(known)}"


def known_settings() -> dict[str, Any]:
    """Every setting a user may give, by name: the dataclass fields behind them."""
    found = {option_name(entry): entry for entry in (*fields(ProcessSettings), *fields(ShardConfig))}
    return {name: entry for name, entry in found.items() if name not in DERIVED and "read" in entry.metadata}


def read_config_file(path: Path) -> dict[str, object]:
    """The mapping in a YAML file."""
    try:
        document = read_yaml(path.read_text())
    except OSError as error:
        raise ConfigError(f"config file {path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"config file {path} is not YAML: {error}") from error
    if document is None:
        return {}
    if not isinstance(document, dict) or not all(isinstance(name, str) for name in document):
        raise ConfigError(f"config file {path} is not a mapping of setting names to values")
    return document
