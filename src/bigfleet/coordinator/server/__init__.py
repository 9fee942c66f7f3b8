"""`bigfleet coordinator` as a process: leadership, commits, the gRPC service, metrics and snapshots around the core."""
