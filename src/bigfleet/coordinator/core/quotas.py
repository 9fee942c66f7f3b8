"""Quotas: how many speculative slots of a (provider, region) each shard may draw, and which ones are its by id.

Moving slots between shards keeps the sum: the limit and the ids go along in the commit that adopts the transfer.
"""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from bigfleet.coordinator.core import commands as do
from bigfleet.coordinator.core.commands import MAX_SLOTS, Code, Refused
from bigfleet.coordinator.core.records import Division, Share, Transfer
from bigfleet.coordinator.core.registry import registered
from bigfleet.coordinator.core.tables import Tables


def set_quota(tables: Tables, command: do.SetQuota) -> None:
    """Replace a division; an empty one removes it."""
    if not command.provider:
        raise Refused(Code.INVALID, "coordinator: quota provider required")
    shares = [Share(registered(tables, shard).generation, limit, slots) for shard, limit, slots in command.shares]
    _check(tables, command, shares)
    before = tables.divisions.get((command.provider, command.region))
    made = Division(command.provider, command.region, tuple(sorted(shares, key=lambda share: share.holder)))
    if shares and made != before:
        tables.put(made)
    elif not shares and before is not None:
        tables.drop(before)


def live_shares(tables: Tables, division: Division) -> list[Share]:
    """Those of registered shards, in order of shard id."""
    alive = [share for share in division.shares if share.holder in tables.generations]
    return sorted(alive, key=lambda share: tables.generations[share.holder].id)


def move_slots(tables: Tables, transfer: Transfer) -> None:
    """The quota follows slots that a recipient adopts."""
    division = tables.divisions.get((transfer.provider, transfer.region))
    if division is None:
        return
    shares = {share.holder: share for share in live_shares(tables, division)}
    giving = shares.get(transfer.donor)
    if giving is None:
        return
    count = min(len(transfer.machines), giving.limit)
    named = set(transfer.machines) & set(giving.slots)
    getting = shares.get(transfer.recipient, Share(transfer.recipient, 0))
    left = tuple(slot for slot in giving.slots if slot not in named)
    shares[transfer.donor] = replace(giving, limit=max(giving.limit - count, len(left)), slots=left)
    moved = giving.limit - shares[transfer.donor].limit
    slots = tuple(sorted({*getting.slots, *named}))
    shares[transfer.recipient] = replace(getting, limit=max(getting.limit + moved, len(slots)), slots=slots)
    tables.put(replace(division, shares=tuple(shares[holder] for holder in sorted(shares))))


def _check(tables: Tables, command: do.SetQuota, shares: list[Share]) -> None:
    holders = Counter(share.holder for share in shares)
    if any(count > 1 for count in holders.values()):
        raise Refused(Code.INVALID, "coordinator: a quota names a shard twice; one share each is accepted")
    slots = Counter(slot for share in shares for slot in share.slots)
    if len(slots) > MAX_SLOTS:
        raise Refused(Code.INVALID, f"coordinator: a quota names {len(slots)} slots; at most {MAX_SLOTS} are accepted")
    for share in shares:
        if share.limit < len(share.slots) or share.limit < 0:
            raise Refused(
                Code.INVALID,
                f"coordinator: a quota gives {share.limit} slots and names {len(share.slots)}; "
                "a limit of at least as many as are named is accepted",
            )
    for (provider, region), other in tables.divisions.items():
        if provider == command.provider and region != command.region:
            slots.update({slot for share in live_shares(tables, other) for slot in share.slots} & slots.keys())
    twice = next((slot for slot, count in sorted(slots.items()) if count > 1), None)
    if twice is not None:
        raise Refused(Code.INVALID, f"coordinator: slot {twice} is given twice; every slot has one shard")
