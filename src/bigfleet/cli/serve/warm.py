"""`bigfleet warm`: compile the engine's kernels ahead, for images and for machines that must start quickly."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bigfleet.cli.commands import CommandError
from bigfleet.cli.output import Output, OutputOption, print_record

LINE_EVERY_SECONDS = 5.0

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command()
def warm(output: OutputOption = Output.TABLE) -> None:
    """Compile the engine's kernels into the cache, so that no shard has to.

    Takes a minute or two, once per version and kind of processor; with everything there already, a second. A shard that
    finds nothing compiles by itself: up to 2,000 machines it decides uncompiled meanwhile, larger fleets wait.

    In an image, where the cache need not be writable afterwards:

        ENV BIGFLEET_KERNEL_CACHE=/var/cache/bigfleet
        RUN bigfleet warm

    The cache is the directory in BIGFLEET_KERNEL_CACHE; without it $XDG_CACHE_HOME or ~/.cache, or else the temporary
    directory. Kernels are compiled for the processor at hand and are compiled again on another kind; set
    NUMBA_CPU_NAME=generic, in the image too, to have them fit all of one architecture.
    """
    console = Console(stderr=True, highlight=False)
    console.print("looking at the engine's kernels ...")
    # Imported late: the engine takes seconds to import, and Numba reads the environment then.
    try:
        from bigfleet.engine import Engine
        from bigfleet.engine.kernels import jit
        from bigfleet.engine.kernels.cache import VARIABLE, cache_roots
    except ModuleNotFoundError as error:
        raise CommandError(f"`bigfleet warm` needs {error.name}: pip install 'bigfleet[shard]'") from error
    engine = Engine()
    if not jit.kernel_count():
        raise CommandError("NUMBA_DISABLE_JIT is set: kernels run as plain Python and there is nothing to compile")
    store, wanted = jit.STORE, cache_roots()[0]
    if store is None or (os.environ.get(VARIABLE) and store.directory.parent != wanted):
        raise CommandError(
            f"compiled kernels cannot be kept in {wanted}: it cannot be written; set {VARIABLE} to a directory that can"
        )
    there = store.complete
    began = time.monotonic()
    with _progress(console, jit.kernel_count()) as told:
        engine.warm(told)
    files = [path for path in store.directory.rglob("*") if path.is_file()]
    print_record(
        {
            "cache": str(store.directory),
            "kernels": jit.kernel_count(),
            "compiled": not there,
            "seconds": round(time.monotonic() - began, 1),
            "bytes": sum(path.stat().st_size for path in files),
        },
        output,
    )


@contextmanager
def _progress(console: Console, total: int) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, elsewhere a line now and then."""
    if console.is_terminal:
        columns = (TextColumn("kernels"), BarColumn(30), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("kernels", total=total)
            yield lambda done, total: bar.update(task, completed=done, total=total)
        return
    began = time.monotonic()
    state = (0, total)
    ended = threading.Event()

    def tell() -> None:
        # By the clock and not by the kernel: one of them takes as long as ten others.
        while not ended.wait(LINE_EVERY_SECONDS):
            done, of = state
            console.print(f"{done} of {of} kernels after {time.monotonic() - began:.0f} s")

    def told(done: int, of: int) -> None:
        nonlocal state
        state = (done, of)

    threading.Thread(target=tell, name="progress", daemon=True).start()
    try:
        yield told
    finally:
        ended.set()
