"""Operators' streams: frames to events and instructions to frames. It carries; the core decides."""
