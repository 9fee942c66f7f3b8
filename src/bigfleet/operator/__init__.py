"""What runs inside a cluster: it tells a shard what has no room, and carries out what the shard decides."""
