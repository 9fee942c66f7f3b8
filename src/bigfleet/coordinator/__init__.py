"""The coordinator: who owns which domains, clusters and slots, and how capacity moves between shards."""
