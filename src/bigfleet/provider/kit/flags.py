"""The command line every provider process shares. Parsed once, into one typed value; mistakes end with code 2."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bigfleet.duration import UNITS, nanoseconds
from bigfleet.provider.kit.core.core import Timeouts
from bigfleet.transport import TlsFiles

DEFAULT_METRICS_ADDR = ":9090"

AddFlags = Callable[[argparse.ArgumentParser], None]


@dataclass(frozen=True, slots=True)
class Flags:
    """What the process was asked to do. `extra` holds the flags the author added, by name."""

    addr: str = ":9000"
    provider: str = "example"
    backend: str = "auto"
    use_fake_backend: bool = False
    offerings: str = ""
    seed_count: int = 32
    state: str = ""
    reconcile_interval: float = 120.0
    metrics_addr: str = DEFAULT_METRICS_ADDR
    reflection: bool = True
    base_user_data: str = ""
    bootstrap_hook: str = "/opt/bigfleet/bootstrap"
    transition_timeout: float = 0.0
    enable_faults: bool = False
    insecure: bool = False
    tls: TlsFiles = field(default_factory=TlsFiles)
    log_format: str = "auto"
    log_level: str = "info"
    extra: dict[str, object] = field(default_factory=dict)

    def timeouts(self, default: Timeouts) -> Timeouts:
        """The author's timeouts, or one for all transitions where the command line says so."""
        every = self.transition_timeout
        return Timeouts(every, every, every, every) if every > 0 else default


def parse_flags(
    argv: Sequence[str] | None = None,
    *,
    provider: str = "example",
    description: str | None = None,
    add_flags: AddFlags | None = None,
) -> Flags:
    """Read the command line; `provider` is the default of `--provider`."""
    parser = argparse.ArgumentParser(description=description)
    add = parser.add_argument
    add("--addr", "--listen", default=":9000", metavar="HOST:PORT", help="gRPC address, or unix:/path (:9000)")
    add("--provider", default=provider, help=f"name on every host reference ({provider})")
    add("--backend", choices=("real", "fake", "auto"), default="auto", help="auto is real where credentials exist")
    add("--use-fake-backend", action="store_true", help="simulate the backend; never chosen silently")
    add("--offerings", default="", metavar="FILE", help="JSON array of what may be bought")
    add("--seed-count", type=_count, default=32, help="slots to offer without an offerings file (32)")
    add("--state", default="", metavar="FILE", help="SQLite state file; without one nothing survives a restart")
    add("--reconcile-interval", type=duration, default=120.0, help="how often to describe again; 0 is never (2m)")
    add("--metrics-addr", default=DEFAULT_METRICS_ADDR, help="HTTP metrics and health; empty is off (:9090)")
    add("--reflection", type=_switch, nargs="?", default=True, const=True, help="tell tools what is served here (true)")
    add("--base-user-data", default="", metavar="FILE", help="first-boot user data of every host")
    add("--bootstrap-hook", default="/opt/bigfleet/bootstrap", help="what configuring runs in the host")
    add("--transition-timeout", type=duration, default=0.0, help="one timeout for all transitions (per kind)")
    add("--enable-faults", action="store_true", help="fail work on fault-* clusters; loopback only, for conformance")
    add("--insecure", action="store_true", help="allow plaintext beyond loopback")
    for name, what in (("cert", "this server's certificate"), ("key", "its key"), ("ca", "authority of the callers")):
        add(f"--tls-{name}", default="", metavar="FILE", help=what)
    add("--log-format", choices=("auto", "json", "text"), default="auto")
    add("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    if add_flags is not None:
        add_flags(parser)
    values = vars(parser.parse_args(argv))
    tls = TlsFiles(*(str(values.pop(f"tls_{name}")) for name in ("cert", "key", "ca")))
    known = {name: values.pop(name) for name in Flags.__dataclass_fields__ if name in values}
    return Flags(**known, tls=tls, extra=values)


def duration(text: str) -> float:
    """Seconds from `2m`, `30s`, `250ms` or a plain number."""
    found = nanoseconds(text, bare="s")
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; write 250ms, 30s, 2m, 1h or 0")
    return found / UNITS["s"]


def _switch(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of slots; write 0 or more")
    return int(text)
