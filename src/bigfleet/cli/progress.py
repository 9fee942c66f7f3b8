"""How a long simulation shows that it is alive: a bar on a terminal, a plain line now and then in a log.

Both go to standard error, so that standard output stays what a program reads. In a log, short runs show nothing.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

LINE_EVERY_SECONDS = 10.0

Report = Callable[[float], None]


@contextmanager
def simulation_progress(title: str, *, first_after: float = LINE_EVERY_SECONDS) -> Iterator[Report]:
    """Gives a function that is told the share done; says where things stood when they are stopped by hand."""
    console = Console(stderr=True)
    done = 0.0
    with _bar(title, console) if console.is_terminal else _lines(title, first_after) as show:

        def report(share: float) -> None:
            nonlocal done
            done = share
            show(share)

        try:
            yield report
        except KeyboardInterrupt:
            typer.echo(f"{title}: stopped by hand at {done:.0%}", err=True)
            raise


def warm_up() -> None:
    """Have the engine's kernels ready before a clock starts: loaded, or compiled in about a minute."""
    from bigfleet.engine.engine import Engine

    title = "preparing the engine, compiled once per machine and version"
    with simulation_progress(title, first_after=LINE_EVERY_SECONDS / 2) as progress:
        Engine().warm(lambda done, total: progress(done / total))


@contextmanager
def _bar(title: str, console: Console) -> Iterator[Report]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda done: bar.update(task, completed=done)


@contextmanager
def _lines(title: str, first_after: float) -> Iterator[Report]:
    began = time.monotonic()
    due = began + first_after

    def report(done: float) -> None:
        nonlocal due
        now = time.monotonic()
        if now >= due:
            due = now + LINE_EVERY_SECONDS
            typer.echo(f"{title}: {done:.0%} after {now - began:.0f} s", err=True)

    yield report
