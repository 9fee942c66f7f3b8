"""A real Kubernetes control plane on this machine: built from its Go modules once, started in seconds."""
