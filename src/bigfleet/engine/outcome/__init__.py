"""What a step tells: actions, verdicts, shortfalls, available capacity. It renders what was decided and decides
nothing.
"""
