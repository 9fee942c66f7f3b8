"""How a command line asks one shard: where it is, who asks, and refusals turned into one sentence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import grpc
import typer
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from bigfleet.cli.commands import AwayError, CommandError, MistakeError, NotFoundError
from bigfleet.cli.ctl.asking import STATUS_ERRORS, connection_flags, flag, not_the_one, unreachable, with_shared_flags
from bigfleet.cli.output import Output
from bigfleet.transport.certificates import TlsFiles
from bigfleet.transport.channel import channel

Shard = Annotated[str, typer.Option("--shard", help="The shard's gRPC address.", metavar="HOST:PORT")]
Limit = Annotated[int, typer.Option("--limit", help="At most so many rows; 0 is all.", min=0)]
DEFAULT_SHARD = "127.0.0.1:7780"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Caller:
    """One shard, how to reach it, and how to show what it answers."""

    address: str
    tls: TlsFiles
    insecure: bool
    seconds: float
    output: Output

    def ask(self, question: Callable[[grpc.aio.Channel], Awaitable[T]]) -> T:
        """The answer; a refusal or an absent shard ends the command with one sentence."""
        try:
            return asyncio.run(self._ask(question))
        except grpc.aio.AioRpcError as error:
            raise self._refusal(error.code(), error.details() or "it gives no reason") from error
        except TimeoutError as error:
            raise AwayError(f"shard {self.address} did not answer within {self.seconds:g} s") from error

    def _refusal(self, code: grpc.StatusCode, details: str) -> CommandError:
        if code is grpc.StatusCode.NOT_FOUND:
            return NotFoundError(details)
        if code is grpc.StatusCode.UNAVAILABLE:
            return unreachable("shard", self.address, details, self.tls)
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return not_the_one("shard", self.address)
        kind = STATUS_ERRORS.get(code, CommandError)
        return kind(f"shard {self.address}: {code.name.replace('_', ' ').lower()}: {details}")

    async def _ask(self, question: Callable[[grpc.aio.Channel], Awaitable[T]]) -> T:
        async with asyncio.timeout(self.seconds), channel(self.address, tls=self.tls, insecure=self.insecure) as opened:
            return await question(opened)


def shard_command(timeout: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command whose first parameter is the `Caller` that asks; flags of all such commands are added."""

    def run(taken: dict[str, Any], function: Callable[[Any], None]) -> None:
        tls = TlsFiles(taken["tls_cert"], taken["tls_key"], taken["tls_ca"])
        function(Caller(taken["shard"], tls, taken["insecure"], float(taken["timeout"]), taken["output"]))

    shared = [flag("shard", Shard, DEFAULT_SHARD), *connection_flags(timeout)]
    return lambda function: with_shared_flags(function, shared, run)


def either(name: str, argument: str, option: str, *, needed: bool = True) -> str:
    """What was given as an argument or, as other commands have it, as the option of the same name."""
    if argument and option and argument != option:
        raise MistakeError(f"{name} is {argument!r} and --{name.lower()} is {option!r}; give one of them")
    if needed and not (argument or option):
        raise typer.BadParameter(f"give {name}, as `bigfleetctl {name.lower()}s` lists them")
    return argument or option


async def gathered(pages: AsyncIterable[T]) -> list[T]:
    return [page async for page in pages]


def as_json(message: Message) -> dict[str, Any]:
    """A message under its field names of the contract, the same bytes for the same message: a map has no order of its
    own, and whoever compares two answers must not see a change where there is none."""
    return _ordered(message, MessageToDict(message, preserving_proto_field_name=True))


def _ordered(message: Message, made: dict[str, Any]) -> dict[str, Any]:
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        name = field.name
        if field.message_type.GetOptions().map_entry:
            made[name] = dict(sorted(made[name].items()))
        elif isinstance(made[name], list):
            made[name] = [_ordered(*pair) for pair in zip(value, made[name], strict=True)]
        elif isinstance(made[name], dict):
            made[name] = _ordered(value, made[name])
    return made


def clock(nanos: int) -> str:
    """A time of day for people; empty for none."""
    return datetime.fromtimestamp(nanos // 10**9, UTC).strftime("%H:%M:%SZ") if nanos else ""


def at(nanos: int) -> str:
    """A time for people; a dash for none."""
    return datetime.fromtimestamp(nanos // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if nanos else "-"
