"""Subcommands are loaded when typed; a missing extra is answered with the command that installs it."""

import io
import sys
from collections.abc import Sequence

import pytest
import typer

from bigfleet.cli.commands import CommandError, NotFoundError, Subcommand, run, table

app = typer.Typer(add_completion=False)


@app.command()
def greet(name: str) -> None:
    """Say hello."""
    if name == "nobody":
        raise CommandError("name 'nobody' cannot be greeted: give a person")
    if name == "stranger":
        raise NotFoundError("name 'stranger' is not known; there are: ada")
    typer.echo(f"hello {name}")


def late(name: str) -> None:
    """Imports when it is run, as commands with heavy parts do."""
    import absent_library  # type: ignore[import-not-found]

    absent_library.use(name)


def invoke(monkeypatch: pytest.MonkeyPatch, rows: Sequence[Subcommand], *arguments: str) -> int:
    top = typer.Typer(add_completion=False, cls=table("tool", rows))
    top.callback()(lambda: None)
    monkeypatch.setattr(sys, "argv", ["tool", *arguments])
    with pytest.raises(SystemExit) as ended:
        run(top, prog="tool")
    return int(ended.value.code or 0)


def test_help_lists_a_row_without_loading_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [Subcommand("heavy", "bigfleet.no_such_module", "Does heavy things.", "shard")]
    assert invoke(monkeypatch, rows, "--help") == 0
    assert "Does heavy things." in capsys.readouterr().out


def test_a_row_becomes_its_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "greeting", sys.modules[__name__])
    rows = [Subcommand("greet", "greeting", "Says hello.")]
    assert invoke(monkeypatch, rows, "greet", "ada") == 0
    assert capsys.readouterr().out == "hello ada\n"
    assert invoke(monkeypatch, rows, "greet", "nobody") == 1
    assert capsys.readouterr().err == "error: name 'nobody' cannot be greeted: give a person\n"
    assert invoke(monkeypatch, rows, "greet", "stranger") == 3
    assert capsys.readouterr().err == "error: name 'stranger' is not known; there are: ada\n"
    assert invoke(monkeypatch, rows, "greet", "--help") == 0
    assert "Say hello." in capsys.readouterr().out


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [Subcommand("sim", "absent_library.module", "Simulates.", "sim")]
    assert invoke(monkeypatch, rows, "sim") == 1
    assert capsys.readouterr().err == "error: `tool sim` needs absent_library: pip install 'bigfleet[sim]'\n"


def test_an_extra_missed_while_running_is_named_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "greeting", sys.modules[__name__])
    rows = [Subcommand("late", "greeting:late", "Imports late.", "shard")]
    assert invoke(monkeypatch, rows, "late", "ada") == 1
    assert capsys.readouterr().err == "error: `tool late` needs absent_library: pip install 'bigfleet[shard]'\n"
    assert invoke(monkeypatch, rows, "late", "--help") == 0


def test_a_letter_the_output_cannot_say_does_not_cost_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "greeting", sys.modules[__name__])
    said = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(said, encoding="latin-1"))
    assert invoke(monkeypatch, [Subcommand("greet", "greeting", "Says hello.")], "greet", "adé → bob") == 0
    sys.stdout.flush()
    assert said.getvalue() == "hello adé ".encode("latin-1") + rb"\u2192 bob" + b"\n"
