"""The sentences the lifecycle core answers with: what was wrong with a request, named, bounded and free of secrets."""

from __future__ import annotations

from bigfleet.model.machine import PASSAGES
from bigfleet.provider.kit.core.events import DrainRequested, Refusal, Refuse, Request
from bigfleet.provider.kit.core.records import TEXT_LIMIT, Kind, MachineRecord

ERROR_LIMIT = 4096


def request_problem(event: Request) -> str | None:
    """What is wrong with a request whatever the state of the fleet."""
    if not event.machine_id:
        return "machine_id is empty; name a machine from List"
    if len(event.machine_id) > TEXT_LIMIT:
        return f"machine_id has {len(event.machine_id)} characters; at most {TEXT_LIMIT} are accepted"
    if isinstance(event, DrainRequested) and event.grace_seconds < 0:
        return f"grace_period_seconds {event.grace_seconds} is negative; 0 or more is accepted"
    return event.token.problem()


def fenced(event: Request) -> Refuse:
    token = event.token
    return Refuse(
        Refusal.FENCED,
        f"token ({token.epoch}, {token.sequence}) of shard {_short(token.shard_id)} is not newer than its mark",
    )


def unknown(machine_id: str) -> Refuse:
    return Refuse(Refusal.UNKNOWN, f"machine_id {_short(machine_id)} is not known here")


def owned_by_another(record: MachineRecord) -> Refuse:
    return Refuse(
        Refusal.OUT_OF_POSITION,
        f"machine {_short(record.id)} is {record.state.name} for another cluster; drain it first",
    )


def out_of_position(record: MachineRecord, kind: Kind) -> Refuse:
    needed = PASSAGES[kind].before.name
    return Refuse(Refusal.OUT_OF_POSITION, f"machine {_short(record.id)} is {record.state.name}; {kind} needs {needed}")


def readable(error: str) -> str:
    """Valid UTF-8, bounded: errors are written by backends and end on the wire."""
    return error.encode("utf-8", "replace").decode()[:ERROR_LIMIT]


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")


def sold_out(record: MachineRecord, seconds: float) -> Refuse:
    where = f" in {record.zone}" if record.zone else ""
    return Refuse(Refusal.SOLD_OUT, f"{record.instance_type}{where} is sold out; try again in {seconds:.0f} s")
