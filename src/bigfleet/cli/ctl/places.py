"""Places a command writes to: tried before the work is done, named when it is.

An hour's run must not end in "permission denied", and nobody should have to look for what it left.
"""

import tempfile
from pathlib import Path

import typer

from bigfleet.cli.commands import CommandError


def check_folder(option: str, folder: Path | None) -> None:
    """Make the folder; complain when nothing can be written into it."""
    if folder is not None and (problem := _problem(folder)):
        raise CommandError(f"{option} is {str(folder)!r}, which cannot be written: {problem}; give another folder")


def check_file(option: str, file: Path | None, *, new: bool = False) -> None:
    """Make the file's folder; complain when the file could not be written there."""
    if file is None:
        return
    problem = "it is a folder" if file.is_dir() else "it exists" if new and file.exists() else _problem(file.parent)
    if problem:
        raise CommandError(f"{option} is {str(file)!r}, which cannot be written: {problem}; give another file")


def tell_written(*paths: Path | None) -> None:
    """Say on standard error what was written; of a folder, the page to open is named too."""
    for path in paths:
        if path is None:
            continue
        page = path / "report.html"
        seen = f" (open {page})" if page.is_file() else ""
        typer.echo(f"wrote {path}{'/' if path.is_dir() else ''}{seen}", err=True)


def _problem(folder: Path) -> str:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return error.strerror or str(error)
