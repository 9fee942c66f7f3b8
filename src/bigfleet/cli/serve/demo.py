"""`bigfleet demo`: a whole small fleet on this machine, live in the terminal, or as a script with `--once`."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import sys
import tempfile
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bigfleet.cli.commands import CommandError, MistakeError, leave
from bigfleet.cli.output import Output, OutputOption, print_records
from bigfleet.transport.logs import LogFormat, configure

if TYPE_CHECKING:
    from bigfleet.demo.narrate import Line
    from bigfleet.demo.scene import Scene
    from bigfleet.demo.script import Outcome, Step

PICTURED_STEP = "a critical job"
LOG_TAIL = 15

app = typer.Typer(add_completion=False)
_notes = Console(stderr=True, highlight=False)


@app.callback(invoke_without_command=True)
def demo(
    once: Annotated[bool, typer.Option("--once", help="No screen: run a script, print how it went, exit.")] = False,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Keep journal, audit log and log here; else they are thrown away.", metavar="DIR"),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="With --once: save the screen after the critical job as SVG.", metavar="FILE")
    ] = None,
    compiled: Annotated[
        bool,
        typer.Option("--compiled", help="Compile the kernels first, as a shard does; about a minute, once."),
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Watch BigFleet run a small fleet: a coordinator, two shards, a provider and four clusters, all here.

    None of the machines exist; every decision is real. Keys: 1, 2, 3 burst a cluster, c sends a critical job, z fails a
    zone, d drains demand, r resets, q quits. With --once the exit code is 1 if demand was not met.
    """
    if not once and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandError("the live screen needs a terminal; `bigfleet demo --once` runs without one")
    if picture is not None and not once:
        raise MistakeError("--picture belongs to --once; on a live screen your terminal takes the pictures")
    if not compiled:
        # Numba reads it when it is first imported, which only happens below. Kernels are the same Python either way.
        os.environ.setdefault("NUMBA_DISABLE_JIT", "1")
    with _directory(data_dir) as directory, (directory / "demo.log").open("a", encoding="utf-8") as log:
        configure(log_format=LogFormat.JSON, stream=log)
        try:
            code = asyncio.run(_interruptible(_once(directory, picture, output) if once else _live(directory)))
        except (KeyboardInterrupt, asyncio.CancelledError):
            code = 130
        except ModuleNotFoundError:
            raise
        except Exception as error:
            log.flush()
            _explain(error, directory / "demo.log")
            code = 1
    leave(code)


async def _live(directory: Path) -> int:
    await _warm_up()
    # Imported late: help needs neither a screen nor kernels.
    from bigfleet.demo.app import DemoApp
    from bigfleet.demo.scene import Scene, demo_catalogue

    async with Scene.opened(directory, demo_catalogue()) as scene:
        screen = DemoApp(scene)
        await screen.run_async()
        if screen.broken is not None:
            raise screen.broken
    return 0


async def _once(directory: Path, picture: Path | None, output: Output) -> int:
    await _warm_up()
    from bigfleet.demo.scene import QUICK_SETTINGS, Scene, demo_catalogue
    from bigfleet.demo.script import PATIENCE_SECONDS, run_script

    console = Console(highlight=False, soft_wrap=True, stderr=not output.for_people)

    def tell(outcome: Outcome, lines: list[Line]) -> None:
        ended = f"met in {outcome.seconds:.1f} s" if outcome.met else f"NOT MET within {PATIENCE_SECONDS:g} s"
        console.print(f"[bold]{outcome.step}[/]: {ended}, {outcome.nodes} nodes, ${outcome.dollars_per_hour:.2f}/h")
        for line in reversed(lines):
            console.print(f"    {'> ' if line.who == 'you' else ''}{line.text}", markup=False)
        for text in outcome.short:
            console.print(f"    short: {text}", markup=False)

    async with Scene.opened(directory, demo_catalogue(quick=True), QUICK_SETTINGS) as scene:

        def after(step: Step) -> None:
            if picture is not None and step.title == PICTURED_STEP:
                _save(scene, picture)

        outcomes = await run_script(scene, tell, after)
    met = all(outcome.met for outcome in outcomes)
    if not output.for_people:
        print_records([outcome.record() for outcome in outcomes], output)
    else:
        spent = sum(outcome.seconds for outcome in outcomes)
        missed = [outcome.step for outcome in outcomes if not outcome.met]
        verdict = f"not met in: {', '.join(missed)}" if missed else "all demand was met"
        console.print(f"\n{len(outcomes)} steps in {spent:.1f} s: {verdict}")
    return 0 if met else 1


async def _warm_up() -> None:
    """Kernels ready, with a line that says how far they are."""
    began = time.monotonic()
    _notes.print("BigFleet demo: none of the machines exist, every decision is real")
    if os.environ.get("NUMBA_DISABLE_JIT") == "1":
        _notes.print("so small a fleet needs no compiled kernels: the engine runs as plain Python (see --compiled)")
        return
    with Progress(
        TextColumn("warming the engine's kernels, compiled once per machine"),
        BarColumn(30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=_notes,
        transient=True,
        disable=not _notes.is_terminal,
    ) as progress:
        if not _notes.is_terminal:
            _notes.print("warming the engine's kernels, compiled once per machine ...")
        task = progress.add_task("kernels", total=None)
        from bigfleet.engine import Engine
        from bigfleet.shard.runtime.worker import Worker

        worker = Worker("warm-up")
        await worker.run(Engine().warm, lambda done, total: progress.update(task, completed=done, total=total))
        worker.close()
    _notes.print(f"kernels ready after {time.monotonic() - began:.1f} s")


async def _interruptible(work: Coroutine[Any, Any, int]) -> int:
    """SIGTERM ends it as orderly as an interrupt does."""
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


@contextlib.contextmanager
def _directory(chosen: Path | None) -> Iterator[Path]:
    if chosen is not None:
        chosen.mkdir(parents=True, exist_ok=True)
        yield chosen
        return
    with tempfile.TemporaryDirectory(prefix="bigfleet-demo-") as made:
        yield Path(made)


def _save(scene: Scene, file: Path) -> None:
    """The screen as it would look now."""
    from bigfleet.demo.view import PICTURE, picture

    console = Console(record=True, width=PICTURE[0], file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(picture(scene.moment()))
    file.parent.mkdir(parents=True, exist_ok=True)
    console.save_svg(str(file), title="bigfleet demo")


def _explain(error: Exception, log: Path) -> None:
    """One line, and what its parts complained about before."""
    typer.echo(f"error: the demo broke: {error or type(error).__name__}", err=True)
    complaints = [line for line in log.read_text(encoding="utf-8").splitlines() if '"level": "INFO"' not in line]
    for line in complaints[-LOG_TAIL:]:
        typer.echo(f"    {line}", err=True)
