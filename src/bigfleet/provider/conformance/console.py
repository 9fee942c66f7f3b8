"""What a person sees: a live line per lane on a terminal, one line per behaviour elsewhere, failures in full, totals.

Reads results only; it decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from bigfleet.provider.conformance.config import Config
from bigfleet.provider.conformance.registry import PROFILES, Behaviour
from bigfleet.provider.conformance.report import CERTIFIED, FAILED, verdict
from bigfleet.provider.conformance.runner import is_required
from bigfleet.provider.conformance.verdicts import Result, SkipKind, Status

_MARK = {
    Status.PASSED: "[green]pass[/]",
    Status.FAILED: "[bold red]FAIL[/]",
    Status.SKIPPED: "[yellow]skip[/]",
    Status.NOT_IMPLEMENTED: "[yellow]none[/]",
}


class Watcher:
    """A run as it happens."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self._console = console
        self._quiet = quiet
        self._running: dict[str, str] = {}
        self._task: TaskID | None = None
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<9}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[now]}"),
            console=console,
            disable=quiet or not console.is_terminal,
        )

    def __enter__(self) -> Watcher:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def lane_started(self, lane: str, count: int) -> None:
        self._running.clear()
        self._task = self._progress.add_task(lane, total=count, now="")
        if not self._console.is_terminal and not self._quiet:
            self._console.print(f"lane {lane}: {count} behaviours", highlight=False)

    def behaviour_started(self, behaviour: Behaviour) -> None:
        self._running[behaviour.id] = behaviour.name
        self._show()

    def behaviour_finished(self, result: Result) -> None:
        b = result.behaviour
        self._running.pop(b.id, None)
        if self._task is not None:
            self._progress.advance(self._task)
        self._show()
        if self._quiet:
            return
        if result.status is Status.FAILED:
            self._console.print(
                f"{_MARK[result.status]} {escape(result.failure_text())}", highlight=False, soft_wrap=True
            )
        elif not self._console.is_terminal or result.leaves_incomplete:
            why = f"  ({result.note})" if result.note else ""
            label = b.name if b.is_baseline else f"{b.id} {b.title}"
            self._console.print(f"{_MARK[result.status]} {label}{escape(why)}", highlight=False, soft_wrap=True)

    def _show(self) -> None:
        if self._task is not None:
            names = " ".join(list(self._running)[:4]).replace("TestConformance_", "")
            more = f" +{len(self._running) - 4}" if len(self._running) > 4 else ""
            self._progress.update(self._task, now=names + more)


def print_summary(console: Console, config: Config, results: Sequence[Result], took: float) -> None:
    """Lane totals, totals per area, what is missing, and the verdict in one line."""
    due = [r for r in results if is_required(r.behaviour, config.profiles) and r.skip is not SkipKind.NOT_SELECTED]
    table = Table("area", "passed", "of", "not applicable", box=None, header_style="dim")
    for area in dict.fromkeys(r.behaviour.area for r in due):
        members = [r for r in due if r.behaviour.area == area]
        inapplicable = sum(r.skip in (SkipKind.NOT_APPLICABLE, SkipKind.OPTIONAL) for r in members)
        passed = sum(r.status is Status.PASSED for r in members)
        table.add_row(area, str(passed), str(len(members)), str(inapplicable or ""))
    console.print(table)
    for r in due:
        if r.leaves_incomplete:
            console.print(
                f"[yellow]not judged[/] {r.behaviour.id}: {escape(r.note or 'no test ran')}",
                highlight=False,
                soft_wrap=True,
            )
    failed = [r.behaviour.id for r in due if r.status is Status.FAILED]
    if failed:
        console.print(f"[red]failed[/] {' '.join(failed)}", highlight=False, soft_wrap=True)
    word = verdict(results, config.profiles)
    colour = "green" if word == CERTIFIED else "red" if word == FAILED else "yellow"
    profiles = ",".join(config.profiles)
    console.print(
        f"[bold {colour}]VERDICT: {word}[/] {config.name} for {profiles} in {took:.1f} s",
        highlight=False,
        soft_wrap=True,
    )


def print_catalogue(console: Console, behaviours: Sequence[Behaviour]) -> None:
    """The list of everything the suite checks."""
    table = Table("id", "title", "area", "profiles", box=None, header_style="dim")
    for b in behaviours:
        table.add_row("baseline" if b.is_baseline else b.id, b.title, b.area, ",".join(b.profiles))
    console.print(table)


def print_explanation(console: Console, b: Behaviour) -> None:
    """One behaviour in words."""
    console.print(f"[bold]{b.id}[/] {b.title}", highlight=False, soft_wrap=True)
    console.print(escape(b.explanation), highlight=False, soft_wrap=True)
    minimum, wanted = b.slots
    machines = "none" if not wanted else str(wanted) if minimum == wanted else f"{minimum} to {wanted}"
    console.print(f"area      {b.area}", highlight=False, soft_wrap=True)
    console.print(f"profiles  {', '.join(f'{p} ({PROFILES[p]})' for p in b.profiles)}", highlight=False, soft_wrap=True)
    console.print(f"machines  {machines}", highlight=False, soft_wrap=True)
    console.print(f"presumes  {b.capability.value}", highlight=False, soft_wrap=True)
