"""The instance types the fake knows by name: size and on-demand price, read once from the table next to this file."""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One row of the table."""

    name: str
    vcpu: int
    memory_gib: int
    gpus: int
    on_demand_usd_per_hour: float

    def resources(self) -> dict[str, str]:
        """The shape as Kubernetes resource quantities."""
        shape = {"cpu": str(self.vcpu), "memory": f"{self.memory_gib}Gi"}
        if self.gpus:
            shape["nvidia.com/gpu"] = str(self.gpus)
        return shape


@functools.cache
def known_instance_types() -> dict[str, InstanceType]:
    """Name to instance type, in the order of the table."""
    table = resources.files(__package__).joinpath("instance_types.csv").read_text(encoding="utf-8")
    return {
        row["instance_type"]: InstanceType(
            row["instance_type"],
            int(row["vcpu"]),
            int(row["memory_gib"]),
            int(row["gpus"]),
            float(row["on_demand_usd_per_hour"]),
        )
        for row in csv.DictReader(table.splitlines())
    }
