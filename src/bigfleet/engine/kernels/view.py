"""Views: named columns that kernels see through one pointer.

A view is a frozen set of arrays. Kernels get the address of a table with each column's place and shape, and look
columns up by name (`cells.count[i]`): passing hundreds of arrays by value would make every kernel slow to compile and
to call. The table never changes while a kernel runs, and the arrays are kept alive by whoever calls it.
Without the JIT a view is a plain object with the same attributes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from ctypes import addressof, c_char
from dataclasses import dataclass, fields
from operator import is_
from typing import Any, NamedTuple, Self, TypeVar, dataclass_transform, get_args, get_type_hints

import numpy as np
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import NativeValue, register_model, unbox

from bigfleet.engine.kernels.rows import ROW, places

ELEMENTS = {"u1": types.uint8, "i4": types.int32, "i8": types.int64, "f8": types.float64}
_WORDS = 3  # address and two extents per column

C = TypeVar("C")
W = TypeVar("W", bound="View")


@dataclass_transform(frozen_default=True)
def view(cls: type[C]) -> type[C]:
    """Makes a class of annotated columns (or views) a view."""
    return dataclass(frozen=True, init=False, eq=False, repr=False)(cls)


class View(int):
    """What all views share. A view is a number, the address of its table, because kernels take numbers fastest."""

    def __new__(cls, /, *columns: Any, **named: Any) -> Self:
        kinds = _columns(cls)
        if named or len(columns) != len(kinds):
            given = dict(zip((kind.name for kind in kinds), columns, strict=False), **named)
            columns = tuple([given[kind.name] for kind in kinds])
        mine: dict[str, Any] = {}
        words: list[int] = []
        for kind, value in zip(kinds, columns, strict=True):
            mine[kind.name] = value
            words += _words(kind, value)
        return _viewed(cls, mine, array("q", words))

    def _replace(self, **columns: Any) -> Self:
        """The view with some columns replaced; itself if they are the ones it has."""
        mine = self._asdict()
        changed = {name: value for name, value in columns.items() if mine[name] is not value}
        if not changed:
            return self
        # Most columns stay: their places are copied, not asked for again.
        table = self.__dict__["_table"][:]
        for place, kind in enumerate(_columns(type(self))):
            if kind.name in changed:
                table[place * _WORDS : (place + 1) * _WORDS] = array("q", _words(kind, changed[kind.name]))
        return _viewed(type(self), {**mine, **changed}, table)

    def _asdict(self) -> dict[str, Any]:
        mine = self.__dict__
        return {kind.name: mine[kind.name] for kind in _columns(type(self))}

    def __iter__(self) -> Iterator[Any]:
        return iter(self._asdict().values())


def kept(before: C | None, kind: type[C], *columns: Any) -> C:
    """A view of these columns: the one before if it has the same ones."""
    # A view's attributes begin with its columns, in order; what comes after them is not looked at.
    if before is not None and all(map(is_, before.__dict__.values(), columns)):
        return before
    return kind(*columns)


class _Column(NamedTuple):
    """What a table needs to know of a column."""

    name: str
    is_view: bool
    dtype: Any
    dimensions: int
    # Bytes from one place to the next where columns lie in rows, else 0.
    row: int = 0


def _viewed(cls: type[W], columns: dict[str, Any], table: array[int]) -> W:
    made = int.__new__(cls, table.buffer_info()[0])
    made.__dict__.update(columns, _table=table)
    return made


def _words(column: _Column, value: Any) -> tuple[int, int, int]:
    """What the table says of a column: its place in memory and its extents."""
    if column.is_view:
        return int(value), 0, 0
    shape = value.shape
    lies = value.strides == (column.row,) if column.row else value.flags.c_contiguous
    if value.dtype != column.dtype or len(shape) != column.dimensions or not lies:
        raise TypeError(
            f"column {column.name} is {value.dtype} {value.shape}, not {column.dtype} {column.dimensions}-d"
        )
    try:
        # A fifth of what asking the array itself costs, and a step makes hundreds of columns.
        address = addressof(c_char.from_buffer(value))
    except (TypeError, ValueError):
        # Nothing in it, nobody may write to it, or it lies in rows.
        address = value.__array_interface__["data"][0]
    return (address, shape[0], 0) if len(shape) == 1 else (address, *shape)


_COLUMNS: dict[type, tuple[_Column, ...]] = {}


def _columns(view_class: type) -> tuple[_Column, ...]:
    found = _COLUMNS.get(view_class)
    if found is None:
        rows = places(view_class)
        found = _COLUMNS[view_class] = tuple(
            _Column(name, True, None, 0)
            if isinstance(hint, ViewType)
            else _Column(name, False, np.dtype(str(hint.dtype)), hint.ndim, rows[name][2] if name in rows else 0)
            for name, hint in _hints(view_class).items()
        )
    return found


def column_type(hint: Any) -> Any:
    """The Numba type of an annotated column."""
    _, element, dimensions, *layout = get_args(hint)
    return types.Array(ELEMENTS[element], dimensions, "A" if ROW in layout else "C")


class ViewType(types.Type):
    """The Numba type of a view class."""

    def __init__(self, view_class: type) -> None:
        self.view_class = view_class
        super().__init__(name=f"View({view_class.__module__}.{view_class.__qualname__})")

    @property
    def columns(self) -> dict[str, Any]:
        return _hints(self.view_class)


_HINTS: dict[type, dict[str, Any]] = {}


def _hints(view_class: type) -> dict[str, Any]:
    """Column name to Numba type, in the order of declaration."""
    found = _HINTS.get(view_class)
    if found is None:
        found = {}
        declared = get_type_hints(view_class, include_extras=True)
        for each in fields(view_class):
            hint = declared[each.name]
            if isinstance(hint, type) and issubclass(hint, View):
                found[each.name] = ViewType(hint)
            else:
                found[each.name] = column_type(hint)
        # Known to others only when it is whole: several engines may begin at once, each in its thread.
        _HINTS[view_class] = found
    return found


register_model(ViewType)(models.OpaqueModel)


@unbox(ViewType)
def _unbox(typ: Any, obj: Any, c: Any) -> Any:
    """Views arrive as the numbers they are."""
    address = c.pyapi.long_as_longlong(obj)
    return NativeValue(
        c.builder.inttoptr(address, cgutils.voidptr_t), is_error=cgutils.is_not_null(c.builder, c.pyapi.err_occurred())
    )


@infer_getattr
class _Columns(AttributeTemplate):
    key = ViewType

    def generic_resolve(self, typ: Any, attr: str) -> Any:
        return typ.columns.get(attr)


@lower_getattr_generic(ViewType)
def _column(context: Any, builder: Any, typ: Any, value: Any, attr: str) -> Any:
    """Looks a column up once per function, in its entry block: views are arguments and never change inside one."""
    base = _argument(builder, value)
    known = builder.function.__dict__.setdefault("_columns", {})
    key = (id(base), attr)
    if key not in known:
        if base is value and not _in_entry(builder, value):
            return _look_up(context, builder, typ, value, attr)
        with builder.goto_entry_block():
            # The base is kept as well, so that its id stays its own.
            known[key] = (_look_up(context, builder, typ, base, attr), base)
    return known[key][0]


def _argument(builder: Any, value: Any) -> Any:
    """The function argument a value was loaded from, or the value itself."""
    source = getattr(value, "operands", [None])[0] if getattr(value, "opname", "") == "load" else None
    for argument in builder.function.args:
        if source is not None and argument.name == f"arg.{source.name}":
            return argument
    return value


def _in_entry(builder: Any, value: Any) -> bool:
    return getattr(value, "parent", None) is builder.function.entry_basic_block


def _look_up(context: Any, builder: Any, typ: Any, value: Any, attr: str) -> Any:
    columns = typ.columns
    place = list(columns).index(attr) * _WORDS
    kind = columns[attr]
    words = builder.bitcast(value, cgutils.intp_t.as_pointer())

    def word(offset: int) -> Any:
        loaded = builder.load(cgutils.gep_inbounds(builder, words, place + offset))
        # Never changes while a kernel runs: lets LLVM keep columns in registers across stores.
        loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
        return loaded

    if isinstance(kind, ViewType):
        return builder.inttoptr(word(0), cgutils.voidptr_t)
    item = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    shape = [word(1 + d) for d in range(kind.ndim)]
    if kind.layout == "A":
        # A constant of the compiled kernel.
        strides = [context.get_constant(types.intp, places(typ.view_class)[attr][2])]
    else:
        strides = [item] if kind.ndim == 1 else [builder.mul(shape[1], item), item]
    items = shape[0] if kind.ndim == 1 else builder.mul(shape[0], shape[1])
    data = builder.inttoptr(word(0), context.get_data_type(kind.dtype).as_pointer())
    # Built by hand in the layout of Numba's arrays, without memory. No owner: who calls the kernel keeps arrays alive.
    array = context.get_value_type(kind)(None)
    for field, value in ((2, items), (3, item), (4, data)):
        array = builder.insert_value(array, value, field)
    for axis in range(kind.ndim):
        array = builder.insert_value(array, shape[axis], (5, axis))
        array = builder.insert_value(array, strides[axis], (6, axis))
    return array
