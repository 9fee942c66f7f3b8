"""A provider process that can be made to lie about single machines while it runs.

    python tests/strategies/scripted_provider.py --listen 127.0.0.1:9001 --script FILE --slots 40

It is the honest provider of the conformance tests; FILE is JSON, read again at every call:
`{"records": {id: {field: value}}, "acks": {id: {...}}, "hidden": [id]}` overlays fields of the record as List, Get and
acks show it, or only as acks show it, or leaves a machine out of List.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "liars"))

from google.protobuf import json_format
from honest import HonestProvider, serve

from bigfleet.wire import provider_pb2 as pb


class ScriptedProvider(HonestProvider):
    """Honest, except where the script says otherwise."""

    def __init__(self, slots: int, script: Path) -> None:
        self._script = script
        super().__init__(slots, None, bait=0)

    @property
    def script(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._script.read_text()) if self._script.exists() else {}
        return found

    def record(self, machine_id: str) -> pb.Machine:
        return _overlaid(super().record(machine_id), self.script.get("records", {}).get(machine_id))

    def list(self, request: pb.ListFilter) -> pb.MachineList:
        listed = super().list(request)
        hidden = set(self.script.get("hidden", ()))
        kept = [machine for machine in listed.machines if machine.id not in hidden]
        return pb.MachineList(revision=listed.revision, more=listed.more, machines=kept)

    def mutate(self, kind: str, request: Any) -> pb.TransitionAck:
        ack = super().mutate(kind, request)
        lie = self.script.get("acks", {}).get(request.machine_id)
        return pb.TransitionAck(operation_id=ack.operation_id, machine=_overlaid(ack.machine, lie))


def _overlaid(machine: pb.Machine, fields: dict[str, Any] | None) -> pb.Machine:
    """The record with these fields instead; given as in protobuf's JSON form."""
    if not fields:
        return machine
    for name in fields:
        machine.ClearField(name)
    machine.MergeFrom(json_format.ParseDict(fields, pb.Machine()))
    return machine


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", required=True)
    parser.add_argument("--script", type=Path, required=True)
    parser.add_argument("--slots", type=int, default=40)
    options = parser.parse_args()
    print(json.dumps({"msg": "provider serving", "addr": options.listen}), flush=True)
    asyncio.run(serve(ScriptedProvider(options.slots, options.script), options.listen))


if __name__ == "__main__":
    main()
