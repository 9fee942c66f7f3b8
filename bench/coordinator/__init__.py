"""Coordinator figures as JSON: coordinators, etcd and the shards' reports in processes of their own, over loopback.

python -m bench coordinator reports|domains|failover|rebalance|endurance [options] [--json FILE]
"""

from bench.coordinator.cli import evidence, main

__all__ = ["evidence", "main"]
