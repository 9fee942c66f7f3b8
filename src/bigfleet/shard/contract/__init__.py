"""What passes between the shard's core and its shells: events, instructions, a step's result, tunables. Values only."""
