"""What a scenario says: supply, workloads, steps, expectations. Nothing here runs."""
