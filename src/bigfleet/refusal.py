"""The error whose text is meant for a person, and the exit code that goes with each kind of it.

Command lines print the sentence and end with the code; this is the one place that says which. A leaf that everything
may import and that imports nothing, so that catching a refusal loads no part that could refuse.
"""

REFUSED = 1
MISTAKE = 2
NOT_FOUND = 3
AWAY = 4
CONFLICT = 5
FORBIDDEN = 6


class RefusalError(Exception):
    """What was asked for cannot be done; the one sentence names the field, its value and what would be accepted."""

    code: int = REFUSED


def exit_code(error: BaseException) -> int:
    """The code a command ends with: that of the error, or of what it was raised from where that says more.

    A file that was named and does not exist is not found, whoever stumbled over it and whatever was said.
    """
    chain, code = error, REFUSED
    while True:
        if isinstance(chain, RefusalError) and code == REFUSED:
            code = chain.code
        if isinstance(chain, FileNotFoundError) and code in (REFUSED, MISTAKE):
            return NOT_FOUND
        if chain.__cause__ is None:
            return code
        chain = chain.__cause__
