"""From a decision to a finished operation: emission, calls, bootstrap, drains, failures, and resuming after a
restart.
"""
