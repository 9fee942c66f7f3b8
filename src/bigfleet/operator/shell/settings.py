"""What an operator was told at its start; checked once, here."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from bigfleet.refusal import MISTAKE, RefusalError
from bigfleet.transport.certificates import TlsFiles

# Dollars an interruption may cost at most whom soft taints lead to spot nodes.
_AT_STAKE = 1.0


class SettingsError(RefusalError):
    """A setting that cannot be; the sentence names it and what would be accepted."""

    code = MISTAKE


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """`placement`: tell the shard what has room and what has not, instead of sums alone."""

    cluster_id: str
    shard_addr: str
    kubeconfig: str = ""
    metrics_addr: str = ":8770"
    qps: float = 50.0
    burst: int = 100
    ack_concurrency: int = 16
    rollup_seconds: float = 10.0
    bootstrap_template: Path | None = None
    bootstrap_secrets: Path | None = None
    placement: bool = True
    namespaces: frozenset[str] = frozenset()
    drained_retention_seconds: float = 600.0
    fill_levels: int = 6
    fill_seconds: float = 30.0
    old_seconds: float = 900.0
    # Nodes that close take nobody; else new pods only go elsewhere while there is an elsewhere.
    hard_closing: bool = True
    keep_new_nodes: bool = True
    reserve_new_nodes: bool = True
    # Dollars; units whose interruption costs more are given no node that may be interrupted.
    keep_off_interruptible: float = math.inf
    leader_elect: bool = True
    lease_namespace: str = "bigfleet-system"
    identity: str = ""
    insecure: bool = False
    tls: TlsFiles = field(default_factory=TlsFiles)

    @property
    def spares_firm_nodes(self) -> bool:
        """Whether pods that may be interrupted are to take spot nodes first: only where so little is at stake for all
        whom the rule lets there that nobody is driven into a risk."""
        return self.keep_off_interruptible <= _AT_STAKE

    @property
    def reserves(self) -> bool:
        """Whether new nodes are reserved for pods, which are given a toleration for it."""
        return self.keep_new_nodes and self.reserve_new_nodes

    def __post_init__(self) -> None:
        if not self.cluster_id:
            raise SettingsError("--cluster-id is required")
        if not self.shard_addr:
            raise SettingsError("--shard-addr is required")
        if not 0 <= self.fill_levels <= 6:
            raise SettingsError(f"--fill-levels {self.fill_levels} is out of range; 0 (off) to 6 are accepted")
        if self.fill_seconds <= 0:
            raise SettingsError(f"--fill-interval {self.fill_seconds:g}s is not positive; at least 1s is accepted")
        if self.old_seconds <= 0:
            raise SettingsError(f"--old-after {self.old_seconds:g}s is not positive; more than 0s is accepted")
        if not self.keep_off_interruptible >= 0:
            raise SettingsError(
                f"--keep-off-interruptible {self.keep_off_interruptible:g} is no amount; dollars from 0 are accepted"
            )
        if self.rollup_seconds <= 0:
            raise SettingsError(f"--rollup-interval {self.rollup_seconds:g}s is not positive; at least 1s is accepted")
