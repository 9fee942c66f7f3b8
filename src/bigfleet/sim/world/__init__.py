"""The simulated fleet: clusters, pods, providers, links, injected trouble, and what is measured of it."""
