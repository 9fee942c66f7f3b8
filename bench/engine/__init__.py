"""Engine benchmarks: `python -m bench engine --list | --shape NAME`."""

from bench.engine.cli import main
from bench.engine.page import evidence

__all__ = ["evidence", "main"]
