"""What a command prints: a table for people, `-o json` for programs, both from the same records."""

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer


class Output(StrEnum):
    """The value of `-o`."""

    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[Output, typer.Option("-o", "--output", help="How to print the result.")]


def print_record(record: Mapping[str, Any], output: Output) -> None:
    """One thing: a JSON object, or two columns."""
    if output is Output.JSON:
        _print_json(record)
        return
    width = max((len(name) for name in record), default=0)
    for name, value in record.items():
        typer.echo(f"{name:<{width}}  {value}")


def print_records(records: Sequence[Mapping[str, Any]], output: Output) -> None:
    """Many things: a JSON array, or a table with the keys of the first as columns, never cut to the terminal."""
    if output is Output.JSON:
        _print_json(records)
        return
    if not records:
        typer.echo("nothing to show", err=True)
        return
    lines = [list(records[0]), *([str(value) for value in record.values()] for record in records)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, default=str))
