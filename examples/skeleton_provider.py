"""A complete BigFleet provider whose "hosts" are files in a folder. Copy it and replace the five methods.

    python examples/skeleton_provider.py --addr 127.0.0.1:9000 --state state.db --seed-count 256

The kit does everything else: fencing, retries, timeouts, restarts, revisions, health, metrics, TLS.
"""

import json
from pathlib import Path

from bigfleet.provider import kit

ONE_REPLICA, WHOLE_HOST = {"cpu": "1", "memory": "4Gi"}, {"cpu": "4", "memory": "16Gi"}
MARKET = [  # what we sell: type, zone, how many, billing, dollars per hour, chance per hour of losing it, sizes
    kit.Offering("box.small", "zone-a", 1, kit.CapacityType.ON_DEMAND, 0.40, 0.0, ONE_REPLICA, WHOLE_HOST),
    kit.Offering("box.small", "zone-b", 1, kit.CapacityType.SPOT, 0.12, 0.05, ONE_REPLICA, WHOLE_HOST),
]


class FolderProvider:
    """Hosts are files: making one "boots" it, removing one "destroys" it."""

    def __init__(self, flags: kit.Flags) -> None:
        self.folder = Path(f"{flags.state or '/tmp/bigfleet-skeleton'}.hosts")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.offerings = kit.spread(MARKET, flags.seed_count)
        self.provider = flags.provider

    def describe(self) -> list[kit.Instance]:
        """Everything we could buy. Called at first start and every --reconcile-interval."""
        return [slot for offering in self.offerings for slot in offering.slots(self.provider)]

    def create_instance(self, machine: kit.Machine, operation_id: str) -> str:
        """Boot a host and return its name. The same operation id must give the same host, so name it after that."""
        self._write(operation_id, {"machine": machine.id, "type": machine.instance_type})
        return operation_id

    def configure_instance(
        self, machine: kit.Machine, cluster_id: str, bootstrap_blob: bytes, operation_id: str
    ) -> None:
        """Hand the blob to the host, which joins the cluster with it. It is a secret: use it, never keep or log it."""
        self._write(machine.host_ref, {"machine": machine.id, "cluster": cluster_id})

    def confirm_node_ready(self, machine: kit.Machine, cluster_id: str, operation_id: str) -> bool:
        """Has the node joined and is it Ready? False: the kit asks again, until the configure timeout."""
        return f'"{cluster_id}"' in self._file(machine.host_ref).read_text()

    def drain_instance(self, machine: kit.Machine, grace_period_seconds: int, operation_id: str) -> None:
        """Take the host out of its cluster within the grace. Raise if you cannot: the machine becomes FAILED."""
        self._write(machine.host_ref, {"machine": machine.id})

    def delete_instance(self, machine: kit.Machine, operation_id: str) -> None:
        """Destroy the host. Leave this method out if your hardware cannot be given back."""
        self._file(machine.host_ref).unlink(missing_ok=True)

    def reattach_instance(self, kind: kit.Kind, machine: kit.Machine, operation_id: str) -> str | None:
        """We were killed during this work. Pick it up if that is safe; what raises becomes FAILED."""
        if kind is kit.Kind.CONFIGURE:
            raise RuntimeError("interrupted by a provider restart, and the bootstrap blob is gone")
        if kind is kit.Kind.CREATE:
            return self.create_instance(machine, operation_id)
        if kind is kit.Kind.DRAIN:
            self.drain_instance(machine, 0, operation_id)
        else:
            self.delete_instance(machine, operation_id)
        return None

    def _file(self, host: str) -> Path:
        return self.folder / f"{host}.json"

    def _write(self, host: str, facts: dict[str, str]) -> None:
        draft = self._file(f"{host}.draft")
        draft.write_text(json.dumps(facts))
        draft.replace(self._file(host))  # a crash leaves the old file or the new one, never half of one


if __name__ == "__main__":
    raise SystemExit(kit.serve(FolderProvider, name="skeleton"))
