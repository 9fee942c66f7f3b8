"""A cluster without Kubernetes: tells a shard on this machine what it wants, and answers as an operator would.

    python examples/pretend_cluster.py prod-1 --pods 40 --cpu 4 --memory 16Gi --priority 1000

Start two with different priorities and watch one take machines from the other. It runs until interrupted; then its
demand stays as it was told last, as that of a real cluster would whose operator is away.
"""

import argparse
import asyncio
import contextlib

from bigfleet.shard.rehearsal.synthetic import Row, SyntheticOperator
from bigfleet.transport import channel


async def live(cluster: str, row: Row, shard: str) -> None:
    async with channel(shard) as opened:
        operator = SyntheticOperator(cluster, opened)
        operator.want([row])
        running = asyncio.create_task(operator.run())
        print(f"{cluster} wants {row.pods} pods of {row.unit['cpu']} cpu and {row.unit['memory']}", flush=True)
        before = None
        while not running.done():
            serving = len(operator.heard.configured)
            if serving != before and operator.heard.acks:
                before = serving
                print(f"{cluster} has {serving} machine{'' if serving == 1 else 's'}", flush=True)
            await asyncio.sleep(0.2)
        await running


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    flags.add_argument("cluster", help="the cluster's name")
    flags.add_argument("--pods", type=int, default=10)
    flags.add_argument("--cpu", default="2", help="of one pod")
    flags.add_argument("--memory", default="8Gi", help="of one pod")
    flags.add_argument("--priority", type=int, default=0)
    flags.add_argument("--shard", default="127.0.0.1:7780")
    given = flags.parse_args()
    row = Row(given.pods, {"cpu": given.cpu, "memory": given.memory}, given.priority)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(live(given.cluster, row, given.shard))


if __name__ == "__main__":
    main()
