"""What the log says of capacity that changes shards: one line when it is decided, one when it ended.

Reads what was committed and decides nothing. A command that changed nothing (of a repeated report) is not told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from bigfleet.coordinator.core import commands as do
from bigfleet.model.amounts import spoken_amounts
from bigfleet.model.resources import Resources

if TYPE_CHECKING:
    from bigfleet.coordinator.core.planner import Drain
    from bigfleet.coordinator.core.records import Shape, Transfer
    from bigfleet.coordinator.core.tables import Tables

log = structlog.get_logger(__name__)


def transfer_of(tables: Tables, command: do.Command) -> Transfer | None:
    """The transfer that a command is about, as it is before the command; None for commands about something else."""
    match command:
        case do.Propose():
            return command.transfer
        case do.Release() | do.Adopt() | do.CallOff():
            return tables.transfers.get(command.transfer)
    return None


def tell_transfer(tables: Tables, command: do.Command, before: Transfer) -> None:
    """A command about this transfer was committed and changed something."""
    match command:
        case do.Propose():
            said = "transfer decided"
        case do.Adopt():
            said = "transfer ended: the machines are the recipient's"
        case do.CallOff():
            said = "transfer ended: called off"
        case do.Release() if not command.machines:
            said = "transfer ended: the donor had nothing to give"
        case _:
            return
    kind = "drained" if before.drained else "slots" if before.speculative else "idle"
    log.info(
        said,
        transfer=before.id,
        donor=_name(tables, before.donor),
        recipient=_name(tables, before.recipient),
        kind=kind,
        count=len(before.machines) or before.selector.count,
        instance_type=before.selector.instance_type,
        provider=before.provider,
        demand=_demand(before.units, before.shape, before.priority),
    )


def tell_drain(tables: Tables, drain: Drain) -> None:
    """A donor is asked to drain; what it frees becomes a transfer."""
    log.info(
        "drain decided",
        drain=drain.id,
        donor=_name(tables, drain.donor),
        recipient=_name(tables, drain.recipient),
        count=drain.selector.count,
        instance_type=drain.selector.instance_type,
        demand=_demand(drain.units, drain.shape, drain.priority),
    )


def _name(tables: Tables, generation: int) -> str:
    shard = tables.generations.get(generation)
    return shard.id if shard is not None else f"removed (generation {generation})"


def _demand(units: int, shape: Shape, priority: int) -> str:
    """`3 units of 2 vCPU, 4 GiB at priority 100 (profile 1f…)`."""
    size = spoken_amounts(Resources(dict(shape.min_unit)).to_wire())
    many = f"{units} unit{'' if units == 1 else 's'}" if units else "a sum"
    return f"{many}{f' of {size}' if size else ''} at priority {priority} (profile {shape.fingerprint})"
