"""Deciding for clusters that report placement: units without room, what carries them, what it costs (`docs/engine.md`
§11 to §14). Everything here works in units; sums are decided in `decide`.
"""
