"""What runs a shard's core: threads, clock, files, and the start of the engine."""
