"""The provider kit: write four methods about your hosts, get a complete, certified BigFleet provider.

    from bigfleet.provider import kit

    class Mine:
        def describe(self): ...
        def create_instance(self, machine, operation_id): ...
        def configure_instance(self, machine, cluster_id, bootstrap_blob, operation_id): ...
        def drain_instance(self, machine, grace_period_seconds, operation_id): ...

    raise SystemExit(kit.serve(Mine()))

The guide is docs/provider-author-guide.md; `examples/skeleton_provider.py` is a working start.
"""

from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.model.taint import Taint
from bigfleet.provider.kit.author import Created, Handle, Provider, SoldOut
from bigfleet.provider.kit.core.core import Timeouts
from bigfleet.provider.kit.core.records import Host, Instance, Kind
from bigfleet.provider.kit.core.records import MachineRecord as Machine
from bigfleet.provider.kit.flags import Flags, parse_flags
from bigfleet.provider.kit.offerings import Offering, read_offerings, spread
from bigfleet.provider.kit.runtime import Options
from bigfleet.provider.kit.serve import ProviderProcess, serve
from bigfleet.provider.kit.sqlite_store import SqliteStore
from bigfleet.provider.kit.store import MemoryStore
from bigfleet.provider.kit.threads import stop_requested

__all__ = [
    "CapacityType",
    "Created",
    "Flags",
    "Handle",
    "Host",
    "Instance",
    "Kind",
    "Machine",
    "MachineState",
    "MemoryStore",
    "Offering",
    "Options",
    "Provider",
    "ProviderProcess",
    "SoldOut",
    "SqliteStore",
    "Taint",
    "Timeouts",
    "parse_flags",
    "read_offerings",
    "serve",
    "spread",
    "stop_requested",
]
