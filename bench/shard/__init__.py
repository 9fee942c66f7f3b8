"""Shard figures as JSON: shard, provider and operators in processes of their own, over loopback gRPC.

python -m bench shard load|streams|rate|fleet|bound|crowd [options] [--json FILE]
"""

from bench.shard.cli import evidence, main

__all__ = ["evidence", "main"]
