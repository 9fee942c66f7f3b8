"""What every command prints: a table for people, `-o json` or `-o yaml` for programs.

Programs get exact values under the names of the contract; people get the words and amounts of `cli.words`, so the two
may come from different records. Output is written in one piece: a reader that closes the pipe ends the command quietly.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer


class Output(StrEnum):
    """The value of `-o`."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"

    @property
    def for_people(self) -> bool:
        return self is Output.TABLE


OutputOption = Annotated[
    Output, typer.Option("-o", "--output", help="For people, or exact values for programs.", show_default=True)
]


def print_record(record: Mapping[str, Any], output: Output) -> None:
    """One thing: an object, or two columns."""
    if not output.for_people:
        print_data(record, output)
        return
    width = max((len(name) for name in record), default=0)
    _print_lines(f"{name.replace('_', ' '):<{width}}  {_cell(value)}" for name, value in record.items())


def print_records(records: Sequence[Mapping[str, Any]], output: Output) -> None:
    """Many things: an array, or a table with the keys of the first as columns, never cut to the terminal."""
    if not output.for_people:
        print_data(records, output)
        return
    if not records:
        typer.echo("nothing to show", err=True)
        return
    lines = [list(records[0]), *([_cell(value) for value in record.values()] for record in records)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    _print_lines(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def print_data(value: object, output: Output) -> None:
    """Exact values for programs, in the escapes of the format where the output's encoding may not have a letter."""
    unicode = (sys.stdout.encoding or "utf-8").lower().replace("-", "").startswith("utf")
    text = json.dumps(value, indent=2, default=str, ensure_ascii=not unicode)
    if output is Output.YAML:
        # Imported late: only this form needs it.
        import yaml

        text = yaml.safe_dump(json.loads(text), sort_keys=False, allow_unicode=unicode, width=120).rstrip("\n")
    typer.echo(text)


def _print_lines(lines: Any) -> None:
    typer.echo("\n".join(lines))


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_cell(each)}" for name, each in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(_cell(each) for each in value) or "-"
    return "-" if value is None or value == "" else str(value)
