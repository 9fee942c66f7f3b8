"""The judge: `python -m bench quality [--family NAME] [--json FILE]`; see `docs/quality.md`."""
