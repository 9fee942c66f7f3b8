"""How a command line is put together: a table of subcommands, each loaded only when it is typed.

`bigfleetctl certs` must work where NumPy is not installed, and `--help` must be instant; so a subcommand is a row with
a module name, and the module, which offers a `typer.Typer` called `app` or by the name after a colon, is imported when
its row is chosen. A missing extra is answered with the command that installs it.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import typer
import typer.core
import typer.main

from bigfleet.transport.errors import TransportError
from bigfleet.transport.identity import IdentityError

_COMPLETION = ("install_completion", "show_completion")


class CommandError(Exception):
    """Ends a command with exit code 1 and this one sentence on standard error."""


@dataclass(frozen=True, slots=True)
class Subcommand:
    """One row: what is typed, the module or `module:name` that answers it, its line in `--help`, the extra it needs."""

    name: str
    module: str
    help: str
    extra: str = ""


def run(app: typer.Typer, subcommands: Sequence[Subcommand], *, prog: str) -> None:
    """The body of an entry point: parse, dispatch, and turn refusals into one line and exit code 1."""
    group: Any = typer.main.get_command(app)
    for row in subcommands:
        group.add_command(_Deferred(row, prog))
    try:
        group(prog_name=prog)
    except (CommandError, TransportError, IdentityError) as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)


def leave(code: int) -> NoReturn:
    """Exit at once: the interpreter's own farewell can trip over a kernel that is still being compiled."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class _Deferred(typer.core.TyperCommand):
    """Shows a row in `--help`; becomes the real command once arguments for it are parsed."""

    def __init__(self, row: Subcommand, prog: str) -> None:
        super().__init__(row.name, help=row.help, add_help_option=False)
        self._row = row
        self._prog = prog

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return self._load().make_context(info_name, args, parent=parent, **extra)

    def _load(self) -> Any:
        path, _, name = self._row.module.partition(":")
        try:
            module = importlib.import_module(path)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing == "bigfleet" or not self._row.extra:
                raise
            raise CommandError(
                f"`{self._prog} {self._row.name}` needs {missing}: pip install 'bigfleet[{self._row.extra}]'"
            ) from error
        command: Any = typer.main.get_command(getattr(module, name or "app"))
        command.params = [parameter for parameter in command.params if parameter.name not in _COMPLETION]
        return command
