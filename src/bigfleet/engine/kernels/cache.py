"""Where compiled kernels are kept: which directory, under which key, and whether everything is there.

The key is a digest over every source of the engine package, because Numba itself notices changes of a kernel's own file
only and a kernel is made of functions of many. A full cache is used where it cannot be written, as in an image.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core import caching, config
from numba.core.registry import cpu_target

VARIABLE = "BIGFLEET_KERNEL_CACHE"
PACKAGE = Path(__file__).resolve().parents[1]
_KEPT_CACHES = 6
_PREFIX = "bigfleet-kernels-"


def sources_digest(package: Path = PACKAGE) -> str:
    """What the kernels are made from: every source of the package, in whatever subfolder, and its place."""
    digest = hashlib.sha256()
    for name, path in sorted((path.relative_to(package).as_posix(), path) for path in package.rglob("*.py")):
        digest.update(name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def cache_name(package: Path = PACKAGE) -> str:
    """The directory of kernels made from these sources by this Numba."""
    made_by = f"{numba.__version__} {np.__version__} {config.BOUNDSCHECK} {config.OPT}"
    key = hashlib.sha256(f"{sources_digest(package)} {made_by}".encode())
    return f"{_PREFIX}{key.hexdigest()[:16]}"


def cache_roots() -> list[Path]:
    """Where the cache may be, the best place first: as the variable says, the user's cache, a temporary one."""
    chosen = os.environ.get(VARIABLE)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111  HOME may be unset
    usual = [Path(home), Path(tempfile.gettempdir()) / f"cache-{os.getuid()}"]
    return [Path(chosen).absolute(), *usual] if chosen else usual


class KernelStore:
    """One directory of compiled kernels."""

    def __init__(self, directory: Path, *, writable: bool) -> None:
        self.directory = directory
        self.writable = writable

    @classmethod
    def found(cls) -> KernelStore | None:
        """The first place that has all kernels or can be written; None if there is no such place."""
        name = cache_name()
        for root in cache_roots():
            directory = root / name
            with contextlib.suppress(OSError):
                directory.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=directory):
                    return cls(directory, writable=True)
            if (directory / _seal()).exists():
                return cls(directory, writable=False)
        return None

    @property
    def complete(self) -> bool:
        """Whether every kernel is here, compiled for this processor and this Python."""
        return (self.directory / _seal()).exists()

    def seal(self) -> None:
        """Every kernel is here now. Those of older sources go, but for a few that another version may be using."""
        if not self.writable:
            return
        with contextlib.suppress(OSError):
            (self.directory / _seal()).touch()
            os.utime(self.directory)
            known = self.directory.parent.glob(f"{_PREFIX}*")
            for each in sorted(known, key=lambda path: path.stat().st_mtime, reverse=True)[_KEPT_CACHES:]:
                shutil.rmtree(each, ignore_errors=True)

    def keep(self, dispatcher: Any, function: Callable[..., Any]) -> None:
        """Have a dispatcher look here before it compiles, and leave here what it compiled."""
        dispatcher._cache = _cache_in(self)(function)


def _seal() -> str:
    """The file that says that all is there. Numba compiles for the very processor it runs on."""
    machine = cpu_target.target_context.codegen().magic_tuple()
    made_for = hashlib.sha256(repr((machine, sys.version_info[:2])).encode()).hexdigest()
    return f"complete-{made_for[:12]}"


@functools.cache
def _cache_in(store: KernelStore) -> type[Any]:
    """Numba's cache of one function, in a store."""

    class Place(caching._CacheLocator):
        def __init__(self, py_func: Any, py_file: str) -> None:
            self._py_file = py_file
            self._line = py_func.__code__.co_firstlineno
            path = Path(py_file).absolute()
            # By place within the package: an image may be built elsewhere than it runs.
            inside = path.is_relative_to(PACKAGE)
            folder = path.parent.relative_to(PACKAGE) if inside else Path(self.get_suitable_cache_subpath(py_file))
            self._path = store.directory / folder

        @classmethod
        def from_function(cls, py_func: Any, py_file: str) -> Place:
            return cls(py_func, py_file)

        def ensure_cache_path(self) -> None:
            self._path.mkdir(parents=True, exist_ok=True)

        def get_cache_path(self) -> str:
            return str(self._path)

        def get_source_stamp(self) -> bytes:
            return _digest_of(self._py_file)

        def get_disambiguator(self) -> str:
            return str(self._line)

    class Form(caching.CompileResultCacheImpl):
        _locator_classes = [Place]  # noqa: RUF012  Numba's own name and kind

    class Kept(caching.FunctionCache):
        _impl_class = Form

        # Files that cannot be read or written cost compiling once more, and nothing else.
        def load_overload(self, sig: Any, target_context: Any) -> Any:
            with contextlib.suppress(OSError):
                return super().load_overload(sig, target_context)
            return None

        def save_overload(self, sig: Any, data: Any) -> None:
            with contextlib.suppress(OSError):
                super().save_overload(sig, data)

    return Kept


@functools.cache
def _digest_of(source: str) -> bytes:
    return hashlib.sha256(Path(source).read_bytes()).digest()
