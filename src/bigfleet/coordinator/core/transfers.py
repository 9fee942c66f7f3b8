"""Machines that change shards: PROPOSED → RELEASED → ADOPTED, each step one commit.

A machine is owned by exactly one of a shard and a transfer record. Until the donor has let go it is the donor's; then
it is the record's; once the recipient has persisted a table that names it, the recipient's. Only proposals can be
called off. A machine that moves on leaves the record that brought it. A pinned machine did not move: its labels did.
"""

from __future__ import annotations

from msgspec.structs import replace

from bigfleet.coordinator.core import commands as do
from bigfleet.coordinator.core.commands import MAX_MACHINES, Code, Refused
from bigfleet.coordinator.core.quotas import move_slots
from bigfleet.coordinator.core.records import Phase, Transfer
from bigfleet.coordinator.core.tables import Tables

# A commit has room for so many rows of shards besides those of the machines.
MOST_TOUCHED = 32


def propose(tables: Tables, command: do.Propose) -> None:
    transfer = command.transfer
    for generation in (transfer.donor, transfer.recipient):
        if generation not in tables.generations:
            raise Refused(Code.NOT_FOUND, f"coordinator: shard not found: generation {generation}")
    if transfer.donor == transfer.recipient:
        raise Refused(Code.INVALID, f"coordinator: transfer {transfer.id} has one shard as donor and recipient")
    if transfer.donor in tables.waiting:
        # It may have let a machine go that a domain is about to give to somebody else.
        raise Refused(
            Code.CONFLICT, f"coordinator: transfer {transfer.id} asks a shard whose domains are changing hands"
        )
    if not transfer.id or transfer.id in tables.transfers:
        raise Refused(Code.EXISTS, f"coordinator: transfer already proposed: {transfer.id}")
    wanted = len(transfer.machines) or transfer.selector.count
    if not 0 < wanted <= MAX_MACHINES:
        raise Refused(
            Code.INVALID, f"coordinator: transfer {transfer.id} asks for {wanted} machines; 1 to {MAX_MACHINES} are"
        )
    tables.put(replace(transfer, phase=Phase.PROPOSED, adopted_at=0, revision=tables.next, withheld=()))
    tables.touch(transfer.donor)


def release(tables: Tables, command: do.Release) -> None:
    """The donor let these go; with none of them there is nothing to transfer."""
    transfer = _transfer(tables, command.transfer)
    machines = tuple(sorted(command.machines))
    if transfer.phase is not Phase.PROPOSED:
        if machines != transfer.machines:
            raise Refused(Code.CONFLICT, f"coordinator: transfer {transfer.id} was released with other machines")
        return
    if not machines:
        call_off(tables, do.CallOff(transfer.id))
        return
    # Only the donor knows whose machines it chose where nobody named a provider.
    transfer = replace(transfer, provider=transfer.provider or command.provider)
    _check_released(tables, transfer, machines)
    withheld = {transfer.donor}
    before = [tables.holding(transfer.provider, machine) for machine in machines]
    for earlier in {each.id: each for each in before if each is not None}.values():
        withheld |= {*earlier.withheld}
        _leave(tables, earlier, machines)
    tables.put(
        replace(
            transfer,
            phase=Phase.RELEASED,
            machines=machines,
            revision=tables.next,
            withheld=tuple(sorted(withheld - {transfer.recipient})),
        )
    )
    concerned = {transfer.donor, transfer.recipient, *withheld}
    if len(concerned) <= MOST_TOUCHED:
        tables.touch(*concerned)
    else:
        tables.touch_fleet()


def adopt(tables: Tables, command: do.Adopt) -> None:
    transfer = _transfer(tables, command.transfer)
    if transfer.phase is Phase.PROPOSED:
        raise Refused(Code.CONFLICT, f"coordinator: transfer {transfer.id} is not released yet")
    if transfer.phase is Phase.RELEASED:
        tables.put(replace(transfer, phase=Phase.ADOPTED, adopted_at=command.at))
        if transfer.speculative:
            move_slots(tables, transfer)


def pin(tables: Tables, command: do.Pin) -> None:
    """Name machines whose labels no longer tell their owner, as far as nothing names them yet."""
    if command.fleet_version != tables.meta.fleet_version:
        raise Refused(Code.CONFLICT, "coordinator: machines were named by an outdated table")
    pinned: dict[tuple[int, str], list[str]] = {}
    for provider, machine, owner in command.machines:
        shard = tables.shards.get(owner)
        if shard is not None and provider and machine and tables.holding(provider, machine) is None:
            pinned.setdefault((shard.generation, provider), []).append(machine)
    for number, ((holder, provider), machines) in enumerate(sorted(pinned.items())):
        tables.put(
            Transfer(
                id=f"pin/{tables.next}.{number}",
                phase=Phase.ADOPTED,
                donor=0,
                recipient=holder,
                provider=provider,
                machines=tuple(sorted(set(machines))),
                revision=tables.next,
            )
        )
    if pinned:
        tables.touch_fleet()


def call_off(tables: Tables, command: do.CallOff) -> None:
    transfer = _transfer(tables, command.transfer)
    if transfer.phase is not Phase.PROPOSED:
        raise Refused(Code.CONFLICT, f"coordinator: transfer {transfer.id} is released; only proposals are called off")
    tables.drop(transfer)
    tables.touch(transfer.donor)


def _transfer(tables: Tables, name: str) -> Transfer:
    transfer = tables.transfers.get(name)
    if transfer is None:
        raise Refused(Code.NOT_FOUND, f"coordinator: transfer not found: {name}")
    return transfer


def _check_released(tables: Tables, transfer: Transfer, machines: tuple[str, ...]) -> None:
    named = set(transfer.machines)
    if len(set(machines)) != len(machines) or (named and not named >= set(machines)):
        raise Refused(Code.INVALID, f"coordinator: transfer {transfer.id} was answered with machines nobody asked for")
    if len(machines) > (len(named) or transfer.selector.count):
        raise Refused(Code.INVALID, f"coordinator: transfer {transfer.id} was answered with {len(machines)} machines")
    for machine in machines:
        holding = tables.holding(transfer.provider, machine)
        if holding is not None and (holding.phase is not Phase.ADOPTED or holding.recipient != transfer.donor):
            raise Refused(Code.CONFLICT, f"coordinator: machine {machine} is not {transfer.donor}'s to give")


def _leave(tables: Tables, earlier: Transfer, machines: tuple[str, ...]) -> None:
    staying = tuple(each for each in earlier.machines if each not in machines)
    if staying:
        tables.put(replace(earlier, machines=staying))
    else:
        tables.drop(earlier)
