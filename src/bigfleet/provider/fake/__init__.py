"""A provider without a backend: the kit's own lifecycle over a pretend cloud, for tests, demonstrations, simulation.

`VirtualProvider` runs inside an event kernel; `bigfleet.provider.fake.process` is the same as a process of its own.
"""

from bigfleet.provider.fake.catalogue import (
    LATENCIES,
    Catalogue,
    builtin_catalogue,
    load_catalogue,
    parse_catalogue,
    with_reference_faults,
)
from bigfleet.provider.fake.commands import Command, parse_command
from bigfleet.provider.fake.fields import CatalogueError
from bigfleet.provider.fake.virtual import VirtualProvider

__all__ = [
    "LATENCIES",
    "Catalogue",
    "CatalogueError",
    "Command",
    "VirtualProvider",
    "builtin_catalogue",
    "load_catalogue",
    "parse_catalogue",
    "parse_command",
    "with_reference_faults",
]
