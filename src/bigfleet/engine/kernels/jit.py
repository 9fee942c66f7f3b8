"""Typed Numba kernels: explicit signatures from annotations, compiled on first use or by `warm`, cached by source.

`@kernel` marks what Python calls, `@inner` what only kernels call. NUMBA_DISABLE_JIT=1 runs both as plain Python and
NUMBA_BOUNDSCHECK=1 checks every index. Without a place for a cache kernels are compiled in memory.
A kernel has two forms that compute the same bytes. Whoever cannot wait for the compiled one calls `interpret`, has it
made by `prepare` (in a thread, or in a process before) and goes over to it with `switch`, between two steps.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Annotated, Any, ParamSpec, TypeVar, get_origin, get_type_hints

from llvmlite import ir
from numba.core import cgutils, config, types
from numba.core.dispatcher import Dispatcher
from numba.extending import intrinsic
from numpy.typing import NDArray

from bigfleet.engine.kernels.cache import KernelStore
from bigfleet.engine.kernels.compiling import compile_piece, kernel_dispatcher, piece_dispatcher
from bigfleet.engine.kernels.elements import element_address
from bigfleet.engine.kernels.rows import ROW
from bigfleet.engine.kernels.view import View, ViewType, column_type

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
# Columns that lie in rows: those of one place share a cache line.
U1R = Annotated[NDArray[Any], "u1", 1, ROW]
I4R = Annotated[NDArray[Any], "i4", 1, ROW]
I8R = Annotated[NDArray[Any], "i8", 1, ROW]
F8R = Annotated[NDArray[Any], "f8", 1, ROW]

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
    dispatcher = piece_dispatcher(function)
    resolve = dispatcher.get_call_template

    def resolve_compiled(args: Any, kws: Any) -> Any:
        # Otherwise every mix of int32 and int64 arguments would be compiled as a function of its own.
        if not dispatcher.overloads:
            compile_piece(dispatcher, _signature(function))
        return resolve(args, kws)

    dispatcher.get_call_template = resolve_compiled
    made: Callable[P, R] = dispatcher
    return made


def _no_prefetch(_column: NDArray[Any], _at: int) -> None:
    """`prefetch` in plain Python, where it would only cost."""


def _eight(column: NDArray[Any], at: int) -> int:
    """`eight` in plain Python."""
    return int.from_bytes(column[at : at + 8].tobytes(), "little", signed=True)


if config.DISABLE_JIT:
    prefetch, eight = _no_prefetch, _eight
else:

    @intrinsic
    def eight(_context: Any, column: Any, at: Any) -> Any:
        """Bytes `at` to `at + 7` of a column of bytes as one number: to compare them for being the same."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, args[0])
            place = context.cast(builder, args[1], signature.args[1], types.intp)
            pointer = builder.bitcast(builder.gep(array.data, [place]), ir.IntType(64).as_pointer())
            return builder.load(pointer, align=1)

        return types.int64(column, at), generate

    @intrinsic
    def prefetch(_context: Any, column: Any, at: Any) -> Any:
        """Asks for the cache line of `column[at]` ahead of its use; a hint, without effect on what is computed."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, args[0])
            place = context.cast(builder, args[1], signature.args[1], types.intp)
            pointer = element_address(builder, signature.args[0], array._getvalue(), place)
            word = ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, word, word, word])
            hint = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
            builder.call(hint, [builder.bitcast(pointer, cgutils.voidptr_t), word(0), word(3), word(1)])
            return context.get_dummy_value()

        return types.none(column, at), generate


@inner
def put(column: I8, at: int, value: int) -> None:
    """Writes what is not there yet: memory that nobody has written to costs nothing."""
    if column[at] != value:
        column[at] = value


def warm(progress: Progress | None = None) -> None:
    """Compiles (or loads) every kernel, telling how many are done, and uses them from now on."""
    prepare(progress)
    switch()


def interpret() -> None:
    """Kernels that are not compiled yet run as plain Python until `switch`."""
    for each in _KERNELS:
        each.interpret()


def prepare(progress: Progress | None = None) -> None:
    """Compiles (or loads) every kernel, telling how many are done. Those that run as plain Python go on doing so."""
    for done, each in enumerate(_KERNELS, 1):
        each.prepare()
        if progress is not None:
            progress(done, len(_KERNELS))
    if STORE is not None:
        STORE.seal()


def switch() -> None:
    """Every kernel is used as it was compiled; one that was not yet is compiled when it is first called."""
    for each in _KERNELS:
        each.switch()


def compiled() -> bool:
    """Whether every kernel is compiled and used so."""
    return all(each.is_compiled for each in _KERNELS)


def kernel_count() -> int:
    """How many kernels there are to compile; none without the JIT."""
    return len(_KERNELS)


class _Kernel:
    """A function of one signature in two forms. Each kernel is the only one of its class, so that calling it can become
    calling one of its forms, without a Python function between."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.__wrapped__ = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self._dispatcher = _dispatcher(function)
        self._entry: Callable[..., Any] | None = None
        self.is_compiled = False

    def __call__(self, *args: Any) -> Any:
        """The first call, when nobody has chosen a form before it."""
        self.prepare()
        self.switch()
        return self(*args)

    def prepare(self) -> None:
        if self._entry is None:
            self._entry = self._dispatcher.compile(_signature(self.__wrapped__))

    def switch(self) -> None:
        self.is_compiled = self._entry is not None
        if self._entry is not None:
            type(self).__call__ = staticmethod(self._entry)
        elif "__call__" in vars(type(self)):
            del type(self).__call__

    def interpret(self) -> None:
        if not self.is_compiled:
            type(self).__call__ = staticmethod(_plain(self.__wrapped__))


def _dispatcher(function: Callable[..., Any]) -> Any:
    made = kernel_dispatcher(function)
    if STORE is not None:
        STORE.keep(made, function)
    return made


# The globals that plain functions of a module see, by the identity of its own.
_PLAIN_GLOBALS: dict[int, dict[str, Any]] = {}


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """A copy of the function for Python to run: where the original finds dispatchers, it finds functions like itself.

    Calling a dispatcher from Python would compile it, and a callable between the two would cost every call.
    """
    assert isinstance(function, FunctionType)
    return FunctionType(
        function.__code__,
        _plain_globals(function.__globals__),
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )


def _plain_globals(original: dict[str, Any]) -> dict[str, Any]:
    made = _PLAIN_GLOBALS.get(id(original))
    if made is None:
        # Known before it is filled: functions of two modules may call each other.
        made = _PLAIN_GLOBALS[id(original)] = dict(original)
        for name, value in original.items():
            if isinstance(value, Dispatcher):
                made[name] = _plain(value.py_func)
            elif value is prefetch:
                made[name] = _no_prefetch
            elif value is eight:
                made[name] = _eight
    return made


def _signature(function: Callable[..., Any]) -> Any:
    hints = get_type_hints(function, include_extras=True)
    returned = numba_type(hints.pop("return"))
    return returned(*(numba_type(hint) for hint in hints.values()))


def numba_type(hint: Any) -> Any:
    """The Numba type of an annotation: scalar, column, view, or a tuple of scalars."""
    if hint in _SCALARS:
        return _SCALARS[hint]
    if get_origin(hint) is Annotated:
        return column_type(hint)
    if issubclass(hint, View):
        return ViewType(hint)
    fields = get_type_hints(hint, include_extras=True)
    return types.NamedTuple([numba_type(field) for field in fields.values()], hint)


_KERNELS: list[_Kernel] = []
STORE = None if config.DISABLE_JIT else KernelStore.found()
