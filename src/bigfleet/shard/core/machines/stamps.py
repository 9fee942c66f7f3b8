"""Stamps: for whom a machine is bound, made from a need's profile and carried through the provider's metadata."""

from __future__ import annotations

from functools import lru_cache

from bigfleet.engine.batches import Stamp
from bigfleet.model import assignment
from bigfleet.model.penalty import bucket_dollars
from bigfleet.model.profile import Profile

Metadata = tuple[tuple[str, str], ...]

# Few needs bind many machines, and every machine is seen again after each call: the same texts come in runs.
_REMEMBERED = 1024


@lru_cache(_REMEMBERED)
def stamp_of(profile: Profile, group: str) -> Stamp:
    """What a machine carries once it is bound for a need."""
    return Stamp(
        profile.priority,
        bucket_dollars(profile.interruption_bucket),
        bucket_dollars(profile.reclamation_bucket),
        profile.fingerprint,
        group,
    )


@lru_cache(_REMEMBERED)
def metadata_of(stamp: Stamp) -> Metadata:
    """The stamp in the form Configure carries and the provider echoes."""
    stamped = assignment.Assignment(
        stamp.priority, stamp.interruption_dollars, stamp.reclamation_dollars, stamp.fingerprint, stamp.group
    )
    return tuple(assignment.encode(stamped).items())


@lru_cache(_REMEMBERED)
def stamp_from(metadata: Metadata, known: Stamp) -> tuple[Stamp, tuple[str, ...]]:
    """What the echo says, on top of what was known of the same binding, and a sentence per key that cannot be read."""
    if not metadata:
        return known, ()
    echo, problems = assignment.decode(dict(metadata))
    stamp = Stamp(
        known.priority if echo.priority is None else echo.priority,
        known.interruption_dollars if echo.interruption_dollars is None else echo.interruption_dollars,
        known.reclamation_dollars if echo.reclamation_dollars is None else echo.reclamation_dollars,
        known.fingerprint if echo.fingerprint is None else echo.fingerprint,
        known.group if echo.group is None else echo.group,
    )
    return stamp, problems
