"""`--record FILE`: everything the engine is given, step by step, so that a simulator can decide it all again.

Format: the magic line, then frames of a four-byte big-endian length and a msgpack map. The first frame is the header
(shard, epoch, version); each further one is a step: number, instant, machine columns, roll-ups, links, policy,
conditions. Columns are little-endian bytes. A torn last frame, after a crash, ends the recording without complaint.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from bigfleet.engine.batches import Breaker, Conditions, DemandBatch, Ids, MachineBatch, Rollup, Shape, Stamp
from bigfleet.engine.placement import Backoff, Move, Rest, RestKind
from bigfleet.engine.policy import IdleHold, Placement, Policy, RollupGuard, VictimWeights
from bigfleet.engine.results import NeedKey
from bigfleet.model.profile import Profile
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import Resources
from bigfleet.model.spread import Spread, WhenUnsatisfiable
from bigfleet.model.taint import Taint, Toleration
from bigfleet.refusal import RefusalError
from bigfleet.shard.recording.placed import (
    column,
    counted_document,
    placed_demand,
    read_counted,
    read_placed_demand,
)

if TYPE_CHECKING:
    from bigfleet.shard.contract.events import RunStep

MAGIC = b"bigfleet recording 1\n"
_LENGTH = struct.Struct(">I")
_COLUMNS = (("state", "<u1"), ("shape", "<i4"), ("cluster", "<i4"), ("stamp", "<i4"), ("not_before", "<i8"))


class RecordingError(RefusalError):
    """A recording that cannot be written or read; the message names the file."""


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """The arguments of one engine step.

    Like `RunStep`, but a class of the format: it has what frames of this version hold, whatever becomes of `RunStep`.
    """

    step: int
    now: int
    machines: MachineBatch | None
    demand: DemandBatch | None
    policy: Policy
    conditions: Conditions


class Recorder:
    """Writes one recording; called from the engine's thread, before the step it records."""

    def __init__(self, path: Path, *, shard_id: str, epoch: int, started: int) -> None:
        self.path = path
        self.started = started
        self.bytes_written = 0
        try:
            self._file: IO[bytes] = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        except FileExistsError:
            raise RecordingError(f"recording {path} exists; give a new file name") from None
        except OSError as error:
            raise RecordingError(f"recording {path} cannot be opened: {error.strerror}") from error
        self._file.write(MAGIC)
        self._frame({"shard": shard_id, "epoch": epoch, "started": started})

    def write(self, wanted: RunStep) -> None:
        self._frame(
            {
                "step": wanted.step,
                "now": wanted.now,
                "machines": None if wanted.machines is None else _machines(wanted.machines),
                "demand": None if wanted.demand is None else _demand(wanted.demand),
                "policy": _policy(wanted.policy),
                "conditions": asdict(wanted.conditions),
            }
        )

    def close(self) -> None:
        self._file.close()

    def _frame(self, document: dict[str, Any]) -> None:
        body = msgspec.msgpack.encode(document)
        self._file.write(_LENGTH.pack(len(body)) + body)
        self._file.flush()
        self.bytes_written = self._file.tell()


def read_recording(path: Path) -> Iterator[RecordedStep]:
    """The steps of a recording, in order."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise RecordingError(f"{path} is not a recording: it does not begin with {MAGIC!r}")
        for number, document in enumerate(_frames(file)):
            if number:
                yield _recorded(document)


def recording_header(path: Path) -> dict[str, Any]:
    """Who recorded: shard, epoch and when it started."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise RecordingError(f"{path} is not a recording: it does not begin with {MAGIC!r}")
        return next(_frames(file))


def _frames(file: IO[bytes]) -> Iterator[dict[str, Any]]:
    while len(head := file.read(_LENGTH.size)) == _LENGTH.size:
        (length,) = _LENGTH.unpack(head)
        body = file.read(length)
        if len(body) < length:
            return
        yield msgspec.msgpack.decode(body)


def _machines(batch: MachineBatch) -> dict[str, Any]:
    return {
        "arena": batch.ids.arena.tobytes(),
        "offsets": batch.ids.offsets.astype("<i8").tobytes(),
        **{name: getattr(batch, name).astype(kind).tobytes() for name, kind in _COLUMNS},
        "shapes": [_shape(shape) for shape in batch.shapes],
        "clusters": list(batch.clusters),
        "stamps": [msgspec.structs.asdict(stamp) for stamp in batch.stamps],
        **({} if batch.deadline is None else {"deadline": batch.deadline.astype("<i8").tobytes()}),
    }


def _shape(shape: Shape) -> list[Any]:
    return [
        shape.provider,
        shape.instance_type,
        shape.zone,
        shape.capacity_type,
        shape.price,
        shape.probability,
        dict(shape.allocatable.items()),
        [list(pair) for pair in shape.labels],
        [list(taint) for taint in shape.taints],
    ]


def _demand(batch: DemandBatch) -> dict[str, Any]:
    return {
        "rollups": [_rollup(rollup) for rollup in batch.rollups],
        "links": [list(link) for link in batch.links],
        "forgotten": list(batch.forgotten),
        **placed_demand(batch),
    }


def _rollup(rollup: Rollup) -> dict[str, Any]:
    return {
        "cluster": rollup.cluster,
        "profiles": [_profile(profile) for profile in rollup.profiles],
        "groups": list(rollup.groups),
        "resources": list(rollup.resources),
        "profile": rollup.profile.astype("<i4").tobytes(),
        "group": rollup.group.astype("<i4").tobytes(),
        "aggregate": rollup.aggregate.astype("<i8").tobytes(),
        "min_unit": rollup.min_unit.astype("<i8").tobytes(),
        "overhead": dict(rollup.overhead.items()),
        **({} if rollup.counted is None else {"counted": counted_document(rollup.counted)}),
    }


def _profile(profile: Profile) -> list[Any]:
    return [
        [[each.key, int(each.operator), list(each.values)] for each in profile.requirements],
        [[each.topology_key, each.max_skew, int(each.when)] for each in profile.spread],
        profile.priority,
        profile.interruption_bucket,
        profile.reclamation_bucket,
        [list(each) for each in profile.tolerations],
        *([profile.interruption_microdollars] if profile.interruption_microdollars else []),
    ]


def _policy(policy: Policy) -> dict[str, Any]:
    document = {entry.name: getattr(policy, entry.name) for entry in fields(policy)}
    for name in ("idle_hold", "victim", "guard"):
        document[name] = asdict(document[name])
    document["idle_hold_by_provider"] = {name: asdict(hold) for name, hold in policy.idle_hold_by_provider.items()}
    placement = {entry.name: getattr(policy.placement, entry.name) for entry in fields(policy.placement)}
    document["placement"] = {**placement, "boot_by_provider": dict(policy.placement.boot_by_provider)}
    return document


def _recorded(document: dict[str, Any]) -> RecordedStep:
    machines, demand = document["machines"], document["demand"]
    return RecordedStep(
        document["step"],
        document["now"],
        None if machines is None else _read_machines(machines),
        None if demand is None else _read_demand(demand),
        _read_policy(document["policy"]),
        _read_conditions(document["conditions"]),
    )


def _read_conditions(document: dict[str, Any]) -> Conditions:
    """Recordings of earlier versions know nothing of what placement brought."""
    given = dict(document)
    given["breakers"] = tuple(Breaker(**row) for row in given["breakers"])
    given["backoffs"] = tuple(
        Backoff(**{**row, "row": None if row["row"] is None else NeedKey(**row["row"])})
        for row in given.get("backoffs", ())
    )
    given["rests"] = tuple(Rest(**{**row, "kind": RestKind(row["kind"])}) for row in given.get("rests", ()))
    given["moves"] = tuple(Move(**{**row, "old": tuple(row["old"])}) for row in given.get("moves", ()))
    given["evictions"] = tuple((cluster, pods) for cluster, pods in given.get("evictions", ()))
    return Conditions(**given)


def _read_machines(document: dict[str, Any]) -> MachineBatch:
    columns: dict[str, Any] = {name: column(document[name], kind) for name, kind in _COLUMNS}
    return MachineBatch(
        ids=Ids(column(document["arena"], "<u1"), column(document["offsets"], "<i8")),
        **columns,
        shapes=tuple(_read_shape(shape) for shape in document["shapes"]),
        clusters=tuple(document["clusters"]),
        stamps=tuple(Stamp(**stamp) for stamp in document["stamps"]),
        deadline=column(document["deadline"], "<i8") if "deadline" in document else None,
    )


def _read_shape(row: list[Any]) -> Shape:
    provider, instance_type, zone, capacity_type, price, probability, allocatable, labels, taints = row
    return Shape(
        provider,
        instance_type,
        zone,
        capacity_type,
        price,
        probability,
        Resources(allocatable),
        tuple((key, value) for key, value in labels),
        tuple(Taint(*taint) for taint in taints),
    )


def _read_demand(document: dict[str, Any]) -> DemandBatch:
    return DemandBatch(
        rollups=tuple(_read_rollup(rollup) for rollup in document["rollups"]),
        links=tuple((cluster, connected) for cluster, connected in document["links"]),
        forgotten=tuple(document["forgotten"]),
        **read_placed_demand(document),
    )


def _read_rollup(document: dict[str, Any]) -> Rollup:
    profile = column(document["profile"], "<i4")
    shape = (len(profile), len(document["resources"]))
    return Rollup(
        cluster=document["cluster"],
        profiles=tuple(_read_profile(row) for row in document["profiles"]),
        groups=tuple(document["groups"]),
        resources=tuple(document["resources"]),
        profile=profile,
        group=column(document["group"], "<i4"),
        aggregate=column(document["aggregate"], "<i8").reshape(shape),
        min_unit=column(document["min_unit"], "<i8").reshape(shape),
        overhead=Resources(document["overhead"]),
        counted=read_counted(document["counted"]) if "counted" in document else None,
    )


def _read_profile(row: list[Any]) -> Profile:
    requirements, spread, priority, interruption, reclamation, tolerations, *microdollars = row
    return Profile(
        [Requirement(key, Operator(operator), tuple(values)) for key, operator, values in requirements],
        [Spread(key, skew, WhenUnsatisfiable(when)) for key, skew, when in spread],
        priority,
        interruption,
        reclamation,
        [Toleration(*each) for each in tolerations],
        *microdollars,
    )


def _read_policy(document: dict[str, Any]) -> Policy:
    return Policy(
        **{
            **document,
            "idle_hold": IdleHold(**document["idle_hold"]),
            "idle_hold_by_provider": {
                name: IdleHold(**hold) for name, hold in document["idle_hold_by_provider"].items()
            },
            "victim": VictimWeights(**document["victim"]),
            "guard": RollupGuard(**document["guard"]),
            "placement": Placement(**document.get("placement", {})),
        }
    )
