"""A shard of the base contract, played from its documents: it has never heard of anything that BigFleet adds.

Its messages are made from `proto/base.csv` alone, so what an operator adds is skipped or lost on it, as it would be on
the real one. It acknowledges without saying what, fills neither node names nor clusters nor taints, ends no replay, and
names machines where an instruction speaks of nodes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pool, message_factory

from tools.kube.scripted_shard import ScriptedShard
from tools.wire_contract import PACKAGE, base_files, read_rows

_BASE = Path(__file__).resolve().parents[2] / "proto" / "base.csv"
_POOL = descriptor_pool.DescriptorPool()
_POOL.AddSerializedFile(base_files(read_rows(_BASE)).SerializeToString())


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


class ReferenceShard(ScriptedShard):
    hears = _message("OperatorMessage")
    says = _message("ShardMessage")

    def told_of(self, frame: dict[str, Any]) -> dict[str, Any]:
        return frame

    def greeting(self) -> list[Any]:
        told = [self.says(node_state_update=frame) for frame in self.nodes.values()]
        return [self.says(ack={"echo": "hello", "shard_epoch": 1}), *told]

    def answer(self, rollup: Any) -> dict[str, Any]:
        return {"echo": "rollup", "shard_epoch": 1}

    def wants_blob(self, request: str, cluster: str) -> None:
        self.say(bootstrap_request={"request_id": request, "cluster_id": cluster})
