"""From a CSV of jobs or a shard's recording to a run."""
