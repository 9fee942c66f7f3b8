"""How a command line is put together: a table of subcommands, each loaded only when it is typed.

`bigfleetctl certs` must work where NumPy is not installed, and `--help` must be instant; so a subcommand is a row with
a module name, and the module, which offers a `typer.Typer` called `app`, or an app or a function by the name after a
colon, is imported when its row is chosen. A missing extra is answered with the command that installs it. Nothing is
imported here but typer and the leaf that refusals come from.
"""

import importlib
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NoReturn

import typer
import typer.core
import typer.main

from bigfleet.refusal import AWAY, CONFLICT, FORBIDDEN, MISTAKE, NOT_FOUND, REFUSED, RefusalError, exit_code

# What a shell reports for a program that was ended by a closed pipe.
PIPE_CLOSED = 141
EXIT_CODES = (
    "Exit codes: 0 done; 1 refused or failed; 2 a mistake in the command line; 3 what was named does not exist."
)
# Of commands that ask a process.
ASKING_CODES = "Of whoever is asked also: 4 away or without a leader; 5 its state does not allow it; 6 not permitted."

_COMPLETION = ("install_completion", "show_completion")


class CommandError(RefusalError):
    """Ends a command with its exit code and this one sentence on standard error."""


class MistakeError(CommandError):
    """A flag or argument holds what it cannot, or goes with no other; found where typer does not look."""

    code = MISTAKE


class NotFoundError(CommandError):
    """The command was right, but what it names does not exist; ends with an exit code of its own."""

    code = NOT_FOUND


class AwayError(CommandError):
    """Nobody leads, or nobody answers."""

    code = AWAY


class ConflictError(CommandError):
    """The coordinator's state does not allow it."""

    code = CONFLICT


class ForbiddenError(CommandError):
    """The certificate that was shown, or that none was shown, does not allow this."""

    code = FORBIDDEN


@dataclass(frozen=True, slots=True)
class Subcommand:
    """One row: what is typed, the module or `module:name` that answers it, its line in `--help`, the extra it needs."""

    name: str
    module: str
    help: str
    extra: str = ""
    hidden: bool = False


def _tell_version(context: typer.Context, wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"{context.find_root().info_name} {version('bigfleet')}")
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version and exit.")
]


class CommandTable(typer.core.TyperGroup):
    """A group whose commands are rows of a table."""

    prog: ClassVar[str] = ""
    rows: ClassVar[Sequence[Subcommand]] = ()

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for row in self.rows:
            self.add_command(_Deferred(row))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            row = next((row for row in self.rows if row.name == ctx.invoked_subcommand), None)
            if missing == "bigfleet" or row is None or not row.extra:
                raise
            raise CommandError(
                f"`{self.prog} {row.name}` needs {missing}: pip install 'bigfleet[{row.extra}]'"
            ) from error
        except BrokenPipeError:
            # Whoever read the output has seen enough. The interpreter must not try to flush the rest.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(PIPE_CLOSED)


def table(prog: str, subcommands: Sequence[Subcommand]) -> type[CommandTable]:
    """The `cls` of a `typer.Typer` with these rows."""
    return type("Commands", (CommandTable,), {"prog": prog, "rows": tuple(subcommands)})


def run(app: typer.Typer, *, prog: str, extra: str = "") -> None:
    """The body of an entry point: parse, dispatch, and turn refusals into one line and an exit code.

    `extra` is what the whole program needs beyond the base.
    """
    _escape_what_cannot_be_said()
    try:
        app(prog_name=prog)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "bigfleet" or not extra:
            raise
        _end(f"`{prog}` needs {missing}: pip install 'bigfleet[{extra}]'", REFUSED)
    except RefusalError as error:
        _end(str(error), exit_code(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _end(f"{where}{error.strerror or error}", exit_code(error))


def _escape_what_cannot_be_said() -> None:
    """An arrow on a terminal of Latin-1 is printed as its escape: the rest of the answer must not be lost to it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="backslashreplace")


def leave(code: int) -> NoReturn:
    """Exit at once: the interpreter's own farewell can trip over a kernel that is still being compiled."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _end(sentence: str, code: int) -> NoReturn:
    typer.echo(f"error: {sentence}", err=True)
    sys.exit(code)


class _Deferred(typer.core.TyperCommand):
    """Shows a row in `--help`; becomes the real command once arguments for it are parsed."""

    def __init__(self, row: Subcommand) -> None:
        super().__init__(row.name, help=row.help, hidden=row.hidden, add_help_option=False)
        self._row = row

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return self._load().make_context(info_name, args, parent=parent, **extra)

    def _load(self) -> Any:
        path, _, name = self._row.module.partition(":")
        found = getattr(importlib.import_module(path), name or "app")
        if not isinstance(found, typer.Typer):
            function, found = found, typer.Typer(rich_markup_mode="markdown")
            found.command(self._row.name)(function)
        command: Any = typer.main.get_command(found)
        command.params = [parameter for parameter in command.params if parameter.name not in _COMPLETION]
        return command
