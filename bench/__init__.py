"""Benchmarks. `python -m bench NAME` prints JSON; nothing here is a test."""
