"""The judge: `python -m bench quality [--family NAME] [--json FILE]`; see `docs/quality.md`."""

from bench.quality.cli import main

__all__ = ["main"]
