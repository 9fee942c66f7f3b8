"""The conformance suite: what "BigFleet-compatible" and "BigFleet-certified" mean, checked over gRPC only.

A provider in any language is a black box here: the suite speaks the six RPCs, reads status codes, and judges.
Nothing in this package may import the kit or the fake; a suite that shares code with its subject proves nothing.
"""
