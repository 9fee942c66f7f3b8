"""Snapshots of the coordinator's state: what is in them, the files they are kept in, and judging them before use."""
