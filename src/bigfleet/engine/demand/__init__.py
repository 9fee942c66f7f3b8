"""What clusters ask for: roll-ups, rows, the guard against empty ones, and the entries a step decides about. It
grants nothing.
"""
