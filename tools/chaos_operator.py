"""One process with the operators of some clusters, for chaos: tells the demand in a file, writes down what it heard.

    python -m tools.chaos_operator --shard 127.0.0.1:7780 --folder DIR --cluster a --cluster b

`DIR/<cluster>.demand.json` holds rows as {"kind", "pods", "priority"}; `DIR/<cluster>.heard.json` is replaced a few
times per second: machines by what the shard said of them last, and how many streams this process has opened.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path

import grpc

from bigfleet.model.requirement import Operator, Requirement
from bigfleet.shard.rehearsal.synthetic import Row, SyntheticOperator
from bigfleet.wire import provider_pb2

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
UNIT = {"cpu": "2", "memory": "4Gi"}
LOOK_SECONDS = 0.1
ROLLUP_SECONDS = 0.5
_QUICK = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 200)]


def demand_rows(document: list[dict[str, int | str]]) -> list[Row]:
    """Rows of a demand file."""
    return [
        Row(
            pods=int(row["pods"]),
            unit=UNIT,
            priority=int(row["priority"]),
            requirements=(Requirement(INSTANCE_TYPE, Operator.IN, (str(row["kind"]),)),),
        )
        for row in document
        if row["pods"]
    ]


async def operate(address: str, folder: Path, cluster: str) -> None:
    """For ever: stay connected, tell what the file says, write down what was heard."""
    early = asyncio.Event()
    async with grpc.aio.insecure_channel(address, options=_QUICK) as channel:
        made = SyntheticOperator(cluster, channel, drain_seconds=0.05, keep=2000)
        running = asyncio.create_task(made.run(ROLLUP_SECONDS, early))
        before = ""
        while not running.done():
            text = (folder / f"{cluster}.demand.json").read_text()
            if text != before:
                before = text
                made.want(demand_rows(json.loads(text)))
                early.set()
            _write(folder / f"{cluster}.heard.json", made)
            await asyncio.sleep(LOOK_SECONDS)
        running.result()


def _write(path: Path, made: SyntheticOperator) -> None:
    names = {value: name.removeprefix("MACHINE_STATE_") for name, value in provider_pb2.MachineState.items()}
    heard = {
        "connected": made.connected.is_set(),
        "sessions": made.sessions,
        "epoch": made.heard.acks[-1].shard_epoch if made.heard.acks else 0,
        "resyncs": len(made.heard.resyncs),
        "machines": {machine: names[node.state] for machine, node in sorted(made.heard.nodes.items())},
    }
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(heard))
    draft.replace(path)


async def _main(options: argparse.Namespace) -> None:
    print(json.dumps({"msg": "operating"}), flush=True)
    await asyncio.gather(*(operate(options.shard, options.folder, cluster) for cluster in options.cluster))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shard", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--cluster", action="append", required=True)
    asyncio.run(_main(parser.parse_args()))
