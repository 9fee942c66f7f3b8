"""What a coordinator process is told, typed and checked once at the start."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from bigfleet.coordinator.core.policy import Policy
from bigfleet.transport.certificates import PLAINTEXT, TlsFiles
from bigfleet.transport.errors import FlagError

EXPORT_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class EtcdSettings:
    """Where etcd is. Without certificates of its own the coordinator's are used."""

    endpoints: tuple[str, ...] = ()
    prefix: str = "/bigfleet/coordinator"
    tls: TlsFiles = PLAINTEXT
    user: str = ""
    password_file: str = ""
    lease_seconds: int = 5


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """Everything `bigfleet coordinator` takes. Times are seconds."""

    listen: str = ":7790"
    metrics_addr: str = ":8790"
    id: str = "node-1"
    advertise_addr: str = ""
    data_dir: Path = Path("coord-data")
    etcd: EtcdSettings = field(default_factory=EtcdSettings)
    tls: TlsFiles = PLAINTEXT
    insecure: bool = False
    rebalance_seconds: float = 5.0
    policy: Policy = field(default_factory=Policy)
    ownership_keys: tuple[str, ...] = ()
    export_dir: Path | None = None
    export_seconds: float = EXPORT_SECONDS
    export_keep: int = 48
    shutdown_grace: float = 5.0

    def __post_init__(self) -> None:
        if not self.id:
            raise FlagError("--id is empty; a replica needs a name of its own")
        if self.export_keep < 1:
            raise FlagError(f"--snapshot-export-keep is {self.export_keep}; at least 1 is accepted")
        if self.etcd.lease_seconds < 2:
            raise FlagError(f"--lease is {self.etcd.lease_seconds}s; at least 2s is accepted")
