"""`bigfleet version`: what is installed."""

from importlib.metadata import version as installed

import typer

from bigfleet.cli.output import Output, OutputOption, print_data


def version(output: OutputOption = Output.TABLE) -> None:
    """Print the installed version."""
    if output.for_people:
        typer.echo(installed("bigfleet"))
    else:
        print_data({"version": installed("bigfleet")}, output)
