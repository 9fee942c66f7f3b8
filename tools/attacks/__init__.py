"""Attacks on a running BigFleet from outside, on this tree and on an older one: who withstands what.

    git worktree add /tmp/old 7eab7f6
    python -m tools.attacks --old /tmp/old --json docs/evidence/attacks.json

Everything is done over sockets, files and the command line, by clusters and a cloud written here from the wire
contract alone, so that a tree from before a reorganisation can be attacked as the present one is. An attack says
whether it was withstood and what happened. `docs/robustness.md` names the tests that keep each of them away.
"""
