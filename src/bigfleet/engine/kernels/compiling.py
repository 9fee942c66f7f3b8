"""How Numba is made to compile kernels and their pieces: machine code for kernels alone.

Numba takes every function for one that Python may call: it links each with all it calls, optimizes the whole, makes
machine code and wrappers of it, and does so again for whoever calls that one. Pieces are called by kernels only. So a
piece stays what it was lowered to, and a kernel links all the pieces it reaches, each once, and is optimized once.
While a kernel is compiled, what Numba finds out about an operator and the types it is given is found out once.
What an element of a column becomes is said in `elements`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numba
from numba.core import sigutils, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import PassManager
from numba.core.typed_passes import (
    AnnotateTypes,
    IRLegalization,
    NativeLowering,
    NoPythonBackend,
    NopythonTypeInference,
    PreLowerStripPhis,
)
from numba.core.untyped_passes import FixupArgs, GenericRewrites, IRProcessing, ReconstructSSA, TranslateByteCode

from bigfleet.engine.kernels import elements as elements


def kernel_dispatcher(function: Callable[..., Any]) -> Any:
    """Compiles a function as one that Python calls."""
    return _jit(function, pipeline_class=_KernelCompiler)


def piece_dispatcher(function: Callable[..., Any]) -> Any:
    """Compiles a function as one that only kernels call."""
    return _jit(function, pipeline_class=_PieceCompiler, no_cpython_wrapper=True)


def _jit(function: Callable[..., Any], **options: Any) -> Any:
    # Without the wrapper for callers in C: nobody is one.
    njit: Any = numba.njit
    return njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True, **options)(function)


def compile_piece(dispatcher: Any, signature: Any) -> None:
    """Lowers a piece, under the lock of the kernel that needs it; from now on kernels find it by its function."""
    arguments, returned = sigutils.normalize_signature(signature)  # type: ignore[no-untyped-call]
    made = dispatcher._compiler.compile(arguments, returned)
    found_by = dispatcher.py_func
    dispatcher.targetctx.insert_user_function(found_by, made.fndesc, [made.library])
    dispatcher.overloads[tuple(arguments)] = made._replace(entry_point=found_by)
    dispatcher.disable_compile()


class _PieceLibrary(JITCodeLibrary):
    """A piece as it was lowered, and which libraries it calls."""

    def _optimize_functions(self, ll_module: Any) -> None:
        # Every kernel that links it optimizes it as its own.
        ll_module.data_layout = self._codegen._data_layout

    def finalize(self) -> None:
        self._finalized = True


class _KernelLibrary(JITCodeLibrary):
    """A kernel with every piece it reaches."""

    def _optimize_functions(self, ll_module: Any) -> None:
        # As one with its pieces, and then only once: Numba's rounds before that look for counts of references, which
        # columns do not have.
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        passes, builder = self._codegen._module_pass_manager()  # type: ignore[no-untyped-call]
        passes.run(self._final_module, builder)

    def finalize(self) -> None:
        self._linking_libraries = _reached(self._linking_libraries)
        super().finalize()  # type: ignore[no-untyped-call]


def _reached(libraries: list[Any]) -> list[Any]:
    """These libraries and what their pieces call, each once; others have linked theirs already."""
    found: dict[Any, None] = {}
    waiting = list(reversed(libraries))
    while waiting:
        library = waiting.pop()
        if library not in found:
            found[library] = None
            if isinstance(library, _PieceLibrary):
                waiting.extend(reversed(library._linking_libraries))
    return list(found)


def _library(kind: Callable[..., Any], state: Any, function: Callable[..., Any]) -> Any:
    return kind(state.targetctx.codegen(), function.__qualname__)


# Of Numba's passes those that make something of what kernels are: loops, branches and elements of columns. The others
# look for closures, generators, exceptions, literals and expressions of whole arrays, and looking takes its time too.
_PASSES = (
    TranslateByteCode,
    FixupArgs,
    IRProcessing,
    GenericRewrites,
    ReconstructSSA,
    NopythonTypeInference,
    PreLowerStripPhis,
    IRLegalization,
    AnnotateTypes,
    NativeLowering,
    NoPythonBackend,
)


class _Compiler(Compiler):
    def define_pipelines(self) -> list[Any]:
        passes: Any = PassManager("kernels")  # type: ignore[no-untyped-call]
        for each in _PASSES:
            passes.add_pass(each, each.__name__)
        passes.finalize()
        return [passes]


class _KernelCompiler(_Compiler):
    def compile_extra(self, func: Callable[..., Any]) -> Any:
        self.state.library = _library(_KernelLibrary, self.state, func)
        # So that what is compiled can be kept.
        self.state.library.enable_object_caching()
        with _remembered_operators():
            return super().compile_extra(func)  # type: ignore[no-untyped-call]


class _PieceCompiler(_Compiler):
    def compile_extra(self, func: Callable[..., Any]) -> Any:
        self.state.library = _library(_PieceLibrary, self.state, func)
        self.state.flags.no_compile = True
        return super().compile_extra(func)  # type: ignore[no-untyped-call]


# By function and types of its arguments: what the call is.
_CALLS: dict[Any, Any] = {}


@contextlib.contextmanager
def _remembered_operators() -> Iterator[None]:
    """Numba tries every way to read `a + b` at each place it is written: a quarter of the time kernels take."""
    functions: Any = types.Function
    find_out = functions.get_call_type

    def remembered(function: Any, context: Any, args: Any, kws: Any) -> Any:
        key = None if kws else (function, tuple(args))
        found = _CALLS.get(key)
        if found is None:
            found = find_out(function, context, args, kws)
            if key is not None:
                _CALLS[key] = found
        return found

    functions.get_call_type = remembered
    try:
        yield
    finally:
        functions.get_call_type = find_out
