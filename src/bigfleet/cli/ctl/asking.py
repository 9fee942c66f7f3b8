"""What every command that asks a process has, written once: where to ask, who asks, how long, how to show it, which
refusal each status it may answer with is, and what to say of one that does not answer or answers as somebody else."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, get_type_hints

import grpc
import typer

from bigfleet.cli.commands import (
    AwayError,
    CommandError,
    ConflictError,
    ForbiddenError,
    MistakeError,
    NotFoundError,
)
from bigfleet.cli.flags import Insecure, Seconds, TlsCa, TlsCert, TlsKey, duration
from bigfleet.cli.output import Output, OutputOption
from bigfleet.transport.advice import own_trouble, with_advice
from bigfleet.transport.certificates import TlsFiles

Timeout = Annotated[
    Seconds,
    typer.Option("--timeout", help="How long the whole question may take.", metavar="DURATION", parser=duration),
]
Run = Callable[[dict[str, Any], Callable[[Any], None]], None]


STATUS_ERRORS: dict[grpc.StatusCode, type[CommandError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: MistakeError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.ALREADY_EXISTS: ConflictError,
    grpc.StatusCode.FAILED_PRECONDITION: ConflictError,
    grpc.StatusCode.PERMISSION_DENIED: ForbiddenError,
    grpc.StatusCode.UNAVAILABLE: AwayError,
    grpc.StatusCode.DEADLINE_EXCEEDED: AwayError,
}


def unreachable(role: str, address: str, details: str, tls: TlsFiles) -> CommandError:
    """What to tell people of a connection that was not made: what is wrong with it on this side, if anything is."""
    if own := own_trouble(tls, address):
        return ForbiddenError(f"{role} {address} cannot be reached: {own}")
    advised = with_advice(details, role, address)
    if advised != details:
        return AwayError(f"{role} {address}: {advised}")
    return AwayError(f"{role} {address} cannot be reached ({details}); is it running, is --{role} right?")


def not_the_one(role: str, address: str) -> CommandError:
    """Whoever is there speaks gRPC and does not know the question."""
    other = {"shard": "coordinator", "coordinator": "shard"}[role]
    return CommandError(
        f"{address} answers and does not know this question: it is no {role} (a {other}?), or an older one; "
        f"is --{role} right?"
    )


def flag(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def connection_flags(timeout: Any) -> list[inspect.Parameter]:
    return [
        flag("tls_cert", TlsCert, ""),
        flag("tls_key", TlsKey, ""),
        flag("tls_ca", TlsCa, ""),
        flag("insecure", Insecure, False),
        flag("timeout", Timeout, timeout),
        flag("output", OutputOption, Output.TABLE),
    ]


def with_shared_flags(function: Callable[..., None], shared: Sequence[inspect.Parameter], run: Run) -> Any:
    """A command with the function's own flags and the shared ones. `run` gets the values of the shared ones, and calls
    the function with what it made of them as the first argument."""
    own = list(inspect.signature(function).parameters.values())[1:]
    hints = get_type_hints(function, include_extras=True)

    def command(**given: Any) -> None:
        taken = {each.name: given.pop(each.name) for each in shared}
        run(taken, lambda first: function(first, **given))

    mine = [each.replace(annotation=hints[each.name], kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
    parameters = [*mine, *shared]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__doc__, command.__name__ = function.__doc__, function.__name__
    return command
