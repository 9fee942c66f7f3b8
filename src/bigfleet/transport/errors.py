"""The error every part of the transport raises when it is asked for something it must refuse.

A `TransportError` is a configuration fault: the process should print its one sentence and exit non-zero. Failures of
running calls stay `grpc.RpcError`.
"""

from bigfleet.refusal import AWAY, MISTAKE, RefusalError


class TransportError(RefusalError, ValueError):
    """A listener, channel or certificate cannot be used as asked; the message says what would be accepted."""


class FlagError(TransportError):
    """A flag's value cannot be read as what it has to be."""

    code = MISTAKE


class NoAnswerError(TransportError):
    """Nobody is there to be asked."""

    code = AWAY
