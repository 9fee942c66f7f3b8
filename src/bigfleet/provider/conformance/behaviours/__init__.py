"""The behaviours, one family per module; importing this package is what fills the catalogue."""

from __future__ import annotations

from bigfleet.provider.conformance.behaviours.baseline import BASELINE
from bigfleet.provider.conformance.behaviours.concurrency import CONCURRENCY
from bigfleet.provider.conformance.behaviours.durability import DURABILITY
from bigfleet.provider.conformance.behaviours.failure import FAILURE
from bigfleet.provider.conformance.behaviours.fencing import FENCING
from bigfleet.provider.conformance.behaviours.fields import FIELDS
from bigfleet.provider.conformance.behaviours.fuzz import FUZZ
from bigfleet.provider.conformance.behaviours.lifecycle import LIFECYCLE
from bigfleet.provider.conformance.behaviours.listing import LISTING
from bigfleet.provider.conformance.behaviours.metadata import METADATA
from bigfleet.provider.conformance.behaviours.scale import SCALE
from bigfleet.provider.conformance.behaviours.secrets import SECRETS
from bigfleet.provider.conformance.behaviours.transitions import TRANSITIONS
from bigfleet.provider.conformance.registry import Family

FAMILIES: tuple[Family, ...] = (
    BASELINE,
    LIFECYCLE,
    TRANSITIONS,
    FENCING,
    CONCURRENCY,
    METADATA,
    FAILURE,
    FIELDS,
    LISTING,
    DURABILITY,
    SCALE,
    FUZZ,
    SECRETS,
)
