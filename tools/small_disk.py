"""A disk of a few mebibytes that one program keeps its files on, to be filled and freed from outside.

A tmpfs in a mount namespace of its own, held by a process that does nothing else: no privilege is needed where Linux
lets users make namespaces, and nothing is left behind. What cannot be made is said, not passed over.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FILLER = "filler"
_HOLD = 'mount -t tmpfs -o size="$1" tmpfs "$2" && echo mounted && exec sleep infinity'


class SmallDisk:
    """`path` is where programs behind `prefix` see it, `outside` where everybody else does."""

    def __init__(self, path: Path, holder: subprocess.Popen[str]) -> None:
        self.path = path
        self.outside = Path(f"/proc/{holder.pid}/root{path}")
        self.prefix = (
            *("nsenter", "--target", str(holder.pid), "--user", "--preserve-credentials", "--mount"),
            *(f"--wd={os.getcwd()}", "--"),  # noqa: PTH109  nsenter wants the text
        )

    def fill(self) -> None:
        """Not one byte is free."""
        with (self.outside / FILLER).open("wb", buffering=0) as filler, contextlib.suppress(OSError):
            for size in (1 << 16, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while True:
                        filler.write(b"\0" * size)

    def free(self) -> None:
        (self.outside / FILLER).unlink(missing_ok=True)

    def clear(self) -> None:
        """Everything on it is lost."""
        for each in self.outside.iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()


@contextmanager
def small_disk(path: Path, size: str = "16m") -> Iterator[SmallDisk | None]:
    """The disk, for as long as the block lasts; None where this user may not make one."""
    path.mkdir(parents=True, exist_ok=True)
    argv = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _HOLD, "hold", size, str(path)]
    try:
        holder = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError:
        yield None
        return
    try:
        assert holder.stdout is not None
        yield SmallDisk(path, holder) if holder.stdout.readline().strip() == "mounted" else None
    finally:
        holder.kill()
        holder.wait()
