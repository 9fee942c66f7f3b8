"""Giving back: what reporting clusters return when it is empty, never came up, or costs more than it carries
(`docs/engine.md` §15). Decides for reporting clusters only; sums are reclaimed in `decide`.
"""
