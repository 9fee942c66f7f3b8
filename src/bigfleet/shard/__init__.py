"""The shard: a pure core around the engine, and the asyncio shell that carries its frames, calls and timers."""
