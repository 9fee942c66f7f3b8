"""The error whose text is meant for a person: command lines print it as one line and end with exit code 1.

A leaf that everything may import and that imports nothing, so that catching a refusal loads no part that could refuse.
"""


class RefusalError(Exception):
    """What was asked for cannot be done; the one sentence names the field, its value and what would be accepted."""
