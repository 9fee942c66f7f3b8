"""A provider's author, a program of whatever tree runs it: slow nodes, a patient drain, a diary of its calls."""

import json
import os
import sys
import time
from pathlib import Path

from bigfleet.provider import kit

DIARY, READY = (Path(os.environ[name]) for name in ("DIARY", "READY"))


def _note(what: str, **facts: object) -> None:
    with DIARY.open("a") as out:
        out.write(json.dumps({"what": what, "at": time.time(), **facts}) + "\n")


class Author:
    """Hosts that exist by being asked for."""

    def __init__(self, flags: object) -> None:
        self.fails: set[str] = set()
        self.slots = kit.Offering("box", "zone-a", 2, price_per_hour=0.1, resources={"cpu": "4"}).slots("slot")

    def inject_fault(self, kind: str, machine: object) -> None:
        """The fault lane asks for the next failure to happen in here."""
        self.fails.add(kind)

    def describe(self) -> object:
        return self.slots

    def create_instance(self, machine: object, operation_id: str) -> str:
        _note("create")
        return f"host-{operation_id}"

    def configure_instance(self, machine: object, cluster_id: str, bootstrap_blob: bytes, operation_id: str) -> None:
        _note("configure")
        if "configure" in self.fails:
            self.fails.discard("configure")
            _note("clean up")
            raise RuntimeError("ssh: connection refused")

    def confirm_node_ready(self, machine: object, cluster_id: str, operation_id: str) -> bool:
        return READY.exists()

    def drain_instance(self, machine: object, grace_period_seconds: int, operation_id: str) -> None:
        _note("drain", grace=grace_period_seconds)
        time.sleep(grace_period_seconds)

    def reattach_instance(self, kind: object, machine: object, operation_id: str) -> object:
        """Drains go on for what is left of their grace; nothing else is picked up."""
        if str(getattr(kind, "value", kind)) != "drain":
            raise RuntimeError("nothing to pick up")
        left = getattr(machine, "grace_seconds", 0)
        _note("drain", grace=left)
        time.sleep(left)
        return None

    def delete_instance(self, machine: object, operation_id: str) -> None:
        _note("delete")


if __name__ == "__main__":
    sys.exit(kit.serve(Author))
