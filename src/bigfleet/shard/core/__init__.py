"""The shard's decisions, pure: `core.ShardCore.handle(event, now)` is the only door. Nothing here waits, sends or
knows the time.
"""
