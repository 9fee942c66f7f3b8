"""Snapshots as files: a directory with meta.json and state, or a tar of the two; written whole or not at all."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from pathlib import Path

from bigfleet.coordinator.snapshots.document import Snapshot, SnapshotError

META, DATA, LATEST = "meta.json", "state", "latest"


def read_snapshot(path: Path) -> Snapshot:
    """From a tar file, an export directory, or an exports' `latest`."""
    try:
        if path.is_dir():
            inside = path if (path / META).exists() else path / LATEST
            return Snapshot((inside / META).read_bytes(), (inside / DATA).read_bytes())
        return _read_tar(path)
    except (OSError, tarfile.TarError) as error:
        raise SnapshotError(f"snapshot {path} cannot be read: {error}") from error


def write_tar(snapshot: Snapshot, path: Path) -> None:
    """A tar with meta.json, then state; the name appears once all of it is on disk."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as out:
        with tarfile.open(fileobj=out, mode="w") as tar:
            for name, content in ((META, snapshot.meta), (DATA, snapshot.data)):
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(content), 0o644
                tar.addfile(entry, io.BytesIO(content))
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(path)


def write_export(snapshot: Snapshot, folder: Path, name: str, keep: int) -> Path:
    """A directory of its own below `folder`, `latest` pointing at it, and only the newest `keep` left."""
    made = folder / name
    temporary = folder / f".{name}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True, mode=0o755)
    for part, content in ((META, snapshot.meta), (DATA, snapshot.data)):
        with (temporary / part).open("wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
    temporary.rename(made)
    link = folder / f".{LATEST}.tmp"
    link.unlink(missing_ok=True)
    link.symlink_to(made.name)
    link.replace(folder / LATEST)
    exports = sorted(
        each for each in folder.iterdir() if each.is_dir() and not each.is_symlink() and each.name[0] != "."
    )
    for old in exports[:-keep] if keep > 0 else ():
        shutil.rmtree(old)
    return made


def _read_tar(path: Path) -> Snapshot:
    parts: dict[str, bytes] = {}
    with tarfile.open(path, mode="r:") as tar:
        for entry in tar:
            if entry.name == DATA and META not in parts:
                raise SnapshotError(f"snapshot {path} has state before meta.json")
            if entry.name in (META, DATA) and (content := tar.extractfile(entry)) is not None:
                parts[entry.name] = content.read()
    missing = [name for name in (META, DATA) if name not in parts]
    if missing:
        raise SnapshotError(f"snapshot {path} has no {missing[0]}")
    return Snapshot(parts[META], parts[DATA])
