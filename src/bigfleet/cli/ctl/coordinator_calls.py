"""How a command line asks the coordinator: any replica is dialled, the leader is found, refusals become one sentence.

`coordinator_command` gives a command the flags all of them share, so that each is written as what it asks and shows.
Every kind of refusal has an exit code of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

import grpc
import typer

from bigfleet.cli.commands import AwayError, CommandError
from bigfleet.cli.ctl.asking import STATUS_ERRORS, connection_flags, flag, not_the_one, unreachable, with_shared_flags
from bigfleet.cli.ctl.shard_calls import as_json
from bigfleet.cli.flags import TEN_SECONDS
from bigfleet.cli.output import Output, print_record, print_records
from bigfleet.model.names import LEADER_TERM, PENDING_INSTRUCTIONS, REDIRECT
from bigfleet.transport.certificates import TlsFiles
from bigfleet.transport.channel import channel
from bigfleet.wire import coordinator_pb2_grpc

DEFAULT_COORDINATOR = "127.0.0.1:7790"
WATCH_SECONDS = 2.0
REFERRALS = 4

Coordinator = Annotated[str, typer.Option("--coordinator", help="Any replica.", metavar="HOST:PORT")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Show it again every two seconds until interrupted.")]


@dataclass
class Coordinators:
    """Where to ask, and how to show the answer. `leader`, `term` and `pending` are known once something was read."""

    address: str
    tls: TlsFiles
    insecure: bool
    seconds: float
    output: Output
    leader: str = ""
    trailers: dict[str, str] = field(default_factory=dict)

    @property
    def term(self) -> str:
        return self.trailers.get(LEADER_TERM, "")

    @property
    def pending(self) -> str:
        return self.trailers.get(PENDING_INSTRUCTIONS, "")

    def ask(self, method: str, request: Any) -> Any:
        """The leader's answer; a refusal ends the command with one sentence."""
        try:
            return asyncio.run(self._asked(method, request))
        except grpc.aio.AioRpcError as error:
            raise self.refusal(error) from error
        except TimeoutError as error:
            raise AwayError(f"coordinator {self.address} did not answer within {self.seconds:g} s") from error

    def show(self, messages: Any, row: Callable[[Any], dict[str, Any]]) -> None:
        """Many things: for people a row each, for programs the contract's messages."""
        print_records([row(each) if self.output.for_people else as_json(each) for each in messages], self.output)

    def done(self, sentence: str, **facts: Any) -> None:
        """One thing that was changed: a sentence for people, facts for programs."""
        if self.output.for_people:
            typer.echo(sentence)
        else:
            print_record(facts, self.output)

    async def _asked(self, method: str, request: Any) -> Any:
        address = self.leader or self.address
        async with asyncio.timeout(self.seconds):
            for _ in range(REFERRALS):
                async with channel(address, tls=self.tls, insecure=self.insecure) as opened:
                    call = getattr(coordinator_pb2_grpc.CoordinatorStub(opened), method)(request)
                    try:
                        answer = await call
                    except grpc.aio.AioRpcError as error:
                        address = referred_to(error)
                        continue
                    self.leader = address
                    self.trailers = {str(key): str(value) for key, value in await call.trailing_metadata() or ()}
                    return answer
        raise AwayError(f"coordinator {address} refers to another leader every time; try again")

    def refusal(self, error: grpc.aio.AioRpcError) -> CommandError:
        """What to tell people, with the exit code of its kind."""
        code, details = error.code(), error.details() or "it gives no reason"
        if code is grpc.StatusCode.UNAVAILABLE:
            return unreachable("coordinator", self.address, details, self.tls)
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return not_the_one("coordinator", self.address)
        if details == "coordinator: not leader":
            return AwayError(f"coordinator {self.address} does not lead and knows nobody who does; try again shortly")
        if code in STATUS_ERRORS:
            return STATUS_ERRORS[code](details)
        return CommandError(f"coordinator {self.address}: {code.name.replace('_', ' ').lower()}: {details}")


def coordinator_command(*, watchable: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command whose first parameter is the `Coordinators` it asks; flags of all such commands are added."""

    def run(taken: dict[str, Any], function: Callable[[Any], None]) -> None:
        tls = TlsFiles(taken["tls_cert"], taken["tls_key"], taken["tls_ca"])
        asked = Coordinators(taken["coordinator"], tls, taken["insecure"], float(taken["timeout"]), taken["output"])
        if taken.get("watch"):
            _again(lambda: function(asked), asked.output)
        else:
            function(asked)

    shared = [*_SHARED, _WATCH] if watchable else _SHARED
    return lambda function: with_shared_flags(function, shared, run)


def _again(show: Callable[[], None], output: Output) -> None:
    while True:
        if output.for_people:
            typer.echo("\x1b[2J\x1b[H", nl=False)
        show()
        time.sleep(WATCH_SECONDS)


_SHARED = [flag("coordinator", Coordinator, DEFAULT_COORDINATOR), *connection_flags(TEN_SECONDS)]
_WATCH = flag("watch", Watch, False)


def referred_to(error: grpc.aio.AioRpcError) -> str:
    """The leader a refusal names; a refusal that names none is raised again."""
    trailers: Any = error.trailing_metadata() or ()
    leader = next((str(value) for key, value in trailers if key == REDIRECT), "")
    if not leader:
        raise error
    return leader
