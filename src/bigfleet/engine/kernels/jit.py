"""Typed Numba kernels: explicit signatures from annotations, compiled on first use or by `warm`, cached by source.

`@kernel` marks what Python calls, `@inner` what only kernels call. NUMBA_DISABLE_JIT=1 runs both as plain Python and
NUMBA_BOUNDSCHECK=1 checks every index. The cache directory carries a hash of all kernel sources, because Numba itself
notices changes of a kernel's own file only. Without a writable directory kernels are compiled in memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, config, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from bigfleet.engine.kernels.view import ELEMENTS, View, ViewType

P = ParamSpec("P")
R = TypeVar("R")
Progress = Callable[[int, int], None]

# Elements are Any to the type checker: kernels mix widths freely, and conversions written out cost compile time.
U1 = Annotated[NDArray[Any], "u1", 1]
I4 = Annotated[NDArray[Any], "i4", 1]
I8 = Annotated[NDArray[Any], "i8", 1]
F8 = Annotated[NDArray[Any], "f8", 1]
U1M = Annotated[NDArray[Any], "u1", 2]
I4M = Annotated[NDArray[Any], "i4", 2]
I8M = Annotated[NDArray[Any], "i8", 2]

_KEPT_CACHES = 6
_SCALARS = {int: types.int64, float: types.float64, bool: types.boolean, type(None): types.none}


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """A kernel called from Python; its annotations are its signature."""
    if config.DISABLE_JIT:
        return function
    made: _Kernel = type(function.__name__, (_Kernel,), {})(function)
    _KERNELS.append(made)
    return made


def inner(function: Callable[P, R]) -> Callable[P, R]:
    """A piece of kernels; its annotations are its only signature, compiled when the first kernel needs it."""
    if config.DISABLE_JIT:
        return function
    dispatcher = numba.njit(cache=_CACHED, nogil=True, error_model="numpy")(function)
    resolve = dispatcher.get_call_template

    def resolve_compiled(args: Any, kws: Any) -> Any:
        # Otherwise every mix of int32 and int64 arguments would be compiled as a function of its own.
        if not dispatcher.overloads:
            dispatcher.compile(_signature(function))
            dispatcher.disable_compile()
        return resolve(args, kws)

    dispatcher.get_call_template = resolve_compiled
    made: Callable[P, R] = dispatcher
    return made


if config.DISABLE_JIT:

    def prefetch(_column: NDArray[Any], _at: int) -> None:
        """Asks for the cache line of `column[at]` ahead of its use; a hint, without effect on what is computed."""

else:

    @intrinsic
    def prefetch(_context: Any, column: Any, at: Any) -> Any:
        """Asks for the cache line of `column[at]` ahead of its use; a hint, without effect on what is computed."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, args[0])
            place = context.cast(builder, args[1], signature.args[1], types.intp)
            pointer = builder.bitcast(builder.gep(array.data, [place]), cgutils.voidptr_t)
            word = ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, word, word, word])
            hint = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
            builder.call(hint, [pointer, word(0), word(3), word(1)])
            return context.get_dummy_value()

        return types.none(column, at), generate


def warm(progress: Progress | None = None) -> None:
    """Compiles (or loads) every kernel, telling how many are done."""
    for done, each in enumerate(_KERNELS, 1):
        each.compile()
        if progress is not None:
            progress(done, len(_KERNELS))
    if _DIRECTORY is not None:
        _prune(_DIRECTORY)


def _prune(current: Path) -> None:
    """Removes kernels of older sources; the newest few stay, because another version may be running beside this."""
    with contextlib.suppress(OSError):
        os.utime(current)
        known = sorted(current.parent.glob("bigfleet-kernels-*"), key=lambda each: each.stat().st_mtime, reverse=True)
        for each in known[_KEPT_CACHES:]:
            shutil.rmtree(each, ignore_errors=True)


class _Kernel:
    """A compiled function of one signature. Each kernel is the only one of its class, so that calling it can become
    calling what was compiled, without a Python function between."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.__wrapped__ = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self._dispatcher = numba.njit(cache=_CACHED, nogil=True, error_model="numpy")(function)
        self._compiled = False

    def __call__(self, *args: Any) -> Any:
        """The first call; `compile` puts the compiled function here."""
        self.compile()
        return self(*args)

    def compile(self) -> None:
        if not self._compiled:
            self._compiled = True
            type(self).__call__ = staticmethod(self._dispatcher.compile(_signature(self.__wrapped__)))


def _signature(function: Callable[..., Any]) -> Any:
    hints = get_type_hints(function, include_extras=True)
    returned = numba_type(hints.pop("return"))
    return returned(*(numba_type(hint) for hint in hints.values()))


def numba_type(hint: Any) -> Any:
    """The Numba type of an annotation: scalar, column, view, or a tuple of scalars."""
    if hint in _SCALARS:
        return _SCALARS[hint]
    if get_origin(hint) is Annotated:
        _, element, dimensions = get_args(hint)
        return types.Array(ELEMENTS[element], dimensions, "C")
    if issubclass(hint, View):
        return ViewType(hint)
    fields = get_type_hints(hint, include_extras=True)
    return types.NamedTuple([numba_type(field) for field in fields.values()], hint)


def _cache_directory() -> Path | None:
    """Where compiled kernels are kept, or None when no place can be written."""
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    digest.update(f"{numba.__version__} {np.__version__} {config.BOUNDSCHECK} {config.OPT}".encode())
    name = f"bigfleet-kernels-{digest.hexdigest()[:16]}"
    chosen = os.environ.get("BIGFLEET_KERNEL_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111  HOME may be unset
    for root in [Path(chosen)] if chosen else [Path(home), Path(tempfile.gettempdir()) / f"cache-{os.getuid()}"]:
        directory = root / name
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=directory):
                return directory
        except OSError:
            continue
    return None


_KERNELS: list[_Kernel] = []
_DIRECTORY = None if config.DISABLE_JIT else _cache_directory()
_CACHED = _DIRECTORY is not None
if _DIRECTORY is not None:
    config.CACHE_DIR = str(_DIRECTORY)
