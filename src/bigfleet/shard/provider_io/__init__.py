"""Calls to providers and their answers as events. It carries; the core decides."""
