"""The mirror: what stands where in the cluster, what would fit where, and what has no room (docs/operator-core.md)."""
