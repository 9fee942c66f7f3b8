"""How an element of a column is read and written in machine code: one address, and nothing else of the column.

Numba takes a whole array apart at every `column[i]`, for whatever an index may be. Most of what kernels are made of is
this one expression, so what it becomes decides how long they take to compile. What is computed is the same, negative
indices included; indices of other kinds, other layouts and checked indices (NUMBA_BOUNDSCHECK) stay Numba's.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import lower_builtin
from numba.np.arrayobj import array_len, getitem_array_tuple, getitem_arraynd_intp, setitem_array

_Lowering = Callable[[Any, Any, Any, Any], Any]
_lower: Callable[..., Callable[[_Lowering], _Lowering]] = lower_builtin
_BYTES = ir.IntType(8).as_pointer()
# Places in Numba's arrays.
_DATA, _SHAPE, _STRIDES = 4, 5, 6


@_lower(operator.getitem, types.Array, types.Integer)
def _read(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    column, kind = signature.args
    if not _is_plain(context, column, (kind,)):
        return getitem_arraynd_intp(context, builder, signature, args)
    return builder.load(_address(context, builder, column, args[0], (kind,), args[1:]))


@_lower(operator.getitem, types.Array, types.BaseTuple)
def _read_row(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    column, kinds = signature.args
    if not _is_plain(context, column, tuple(kinds)):
        return getitem_array_tuple(context, builder, signature, args)
    indices = [builder.extract_value(args[1], axis) for axis in range(len(kinds))]
    return builder.load(_address(context, builder, column, args[0], tuple(kinds), indices))


@_lower(operator.setitem, types.Array, types.Any, types.Any)
def _write(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    column, index, kind = signature.args
    in_row = isinstance(index, types.BaseTuple)
    kinds = tuple(index) if in_row else (index,)
    if not _is_plain(context, column, kinds):
        return setitem_array(context, builder, signature, args)
    indices = [builder.extract_value(args[1], axis) for axis in range(len(kinds))] if in_row else args[1:2]
    value = context.cast(builder, args[2], kind, column.dtype)
    builder.store(value, _address(context, builder, column, args[0], kinds, indices))
    return None


@_lower(len, types.Array)
def _length(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    if signature.args[0].ndim == 0:
        return array_len(context, builder, signature, args)
    return builder.extract_value(args[0], (_SHAPE, 0))


def _is_plain(context: Any, column: Any, kinds: tuple[Any, ...]) -> bool:
    """Whether numbers in memory are addressed by an index each."""
    return (
        not context.enable_boundscheck
        and (column.layout == "C" or column.ndim == 1)
        and column.aligned
        and column.ndim == len(kinds)
        and isinstance(column.dtype, types.Integer | types.Float)
        and all(isinstance(kind, types.Integer) for kind in kinds)
    )


def _address(context: Any, builder: Any, column: Any, array: Any, kinds: tuple[Any, ...], indices: Any) -> Any:
    place = None
    for axis, (kind, index) in enumerate(zip(kinds, indices, strict=True)):
        extent = builder.extract_value(array, (_SHAPE, axis))
        at = context.cast(builder, index, kind, types.intp)
        if kind.signed:
            before = builder.icmp_signed("<", at, ir.Constant(at.type, 0))
            at = builder.select(before, builder.add(at, extent), at)
        place = at if place is None else builder.add(builder.mul(place, extent), at)
    return element_address(builder, column, array, place)


def element_address(builder: Any, column: Any, array: Any, place: Any) -> Any:
    """Where an element is: in a column one behind the other, or each in its row (`rows`)."""
    data = builder.extract_value(array, _DATA)
    if column.layout == "C":
        return builder.gep(data, [place])
    bytes_away = builder.mul(place, builder.extract_value(array, (_STRIDES, 0)))
    return builder.bitcast(builder.gep(builder.bitcast(data, _BYTES), [bytes_away]), data.type)
