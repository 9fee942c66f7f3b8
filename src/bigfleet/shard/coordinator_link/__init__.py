"""The coordinator's side door: reports out, instructions in. The shard serves without it."""
