"""The wire contract as rows: read from CSV, taken from compiled descriptors, and compared.

proto/base.csv is the shared v1alpha1 contract and never changes; proto/extensions.csv lists what BigFleet adds.
Every row of a compiled descriptor must be in one of the two. Messages are known by full name, not by file.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from google.protobuf import descriptor_pb2

PACKAGE = "bigfleet.v1alpha1"
FIRST_EXTENSION_NUMBER = 1000

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    _Field.TYPE_DOUBLE: "double",
    _Field.TYPE_INT32: "int32",
    _Field.TYPE_INT64: "int64",
    _Field.TYPE_BOOL: "bool",
    _Field.TYPE_STRING: "string",
    _Field.TYPE_BYTES: "bytes",
}
_SCALAR_NUMBERS = {name: number for number, name in _SCALARS.items()}


class Row(NamedTuple):
    """One fact of the contract; `kind` is message, field, reserved, enum, value or rpc.

    For an rpc `type` is the request, `returns` the response and `label` its streaming.
    """

    kind: str
    owner: str
    number: str = ""
    name: str = ""
    type: str = ""
    label: str = ""
    oneof: str = ""
    returns: str = ""

    def as_csv(self) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="").writerow(self)
        return text.getvalue()


def read_rows(path: Path) -> list[Row]:
    with path.open(newline="") as source:
        header, *lines = csv.reader(source)
    if tuple(header) != Row._fields:
        raise ValueError(f"{path}: columns {header} found, {list(Row._fields)} expected")
    return [Row(*line) for line in lines]


def rows_of(files: Iterable[descriptor_pb2.FileDescriptorProto]) -> list[Row]:
    """Every fact the compiled files state about package bigfleet.v1alpha1."""
    rows: list[Row] = []
    for file in files:
        for message in file.message_type:
            rows += _message_rows(message, "")
        for enum in file.enum_type:
            rows += _enum_rows(enum, "")
        for service in file.service:
            rows += [_rpc_row(service.name, method) for method in service.method]
    return rows


def problems(compiled: Iterable[Row], base: Iterable[Row], extensions: Iterable[Row]) -> list[str]:
    """What is wrong with the compiled contract; an empty list means it is exactly base plus extensions."""
    compiled_rows, base_rows, extension_rows = set(compiled), set(base), set(extensions)
    lines = [f"base row lost or changed: {row.as_csv()}" for row in sorted(base_rows - compiled_rows)]
    lines += [f"extension row lost or changed: {row.as_csv()}" for row in sorted(extension_rows - compiled_rows)]
    lines += [f"in neither table: {row.as_csv()}" for row in sorted(compiled_rows - base_rows - extension_rows)]
    known = {row.owner for row in base_rows if row.kind in ("message", "enum")}
    for row in sorted(extension_rows):
        if row.kind in ("field", "value") and row.owner in known and int(row.number) < FIRST_EXTENSION_NUMBER:
            lines.append(f"extension below {FIRST_EXTENSION_NUMBER} on a shared type: {row.as_csv()}")
    return lines


def base_files(rows: Iterable[Row]) -> descriptor_pb2.FileDescriptorProto:
    """The messages and enums of `rows` as one file: the contract as a peer without our extensions knows it."""
    rows = list(rows)
    file = descriptor_pb2.FileDescriptorProto(name="base_only.proto", package=PACKAGE, syntax="proto3")
    enums = {row.owner for row in rows if row.kind == "enum"}
    messages = {row.owner: file.message_type.add(name=row.owner) for row in rows if row.kind == "message"}
    for row in rows:
        parent, _, short = row.owner.rpartition(".")
        if row.kind == "enum":
            (messages[parent].enum_type if parent else file.enum_type).add(name=short)
        elif row.kind == "value":
            holder = messages[parent].enum_type if parent else file.enum_type
            enum = next(candidate for candidate in holder if candidate.name == short)
            enum.value.add(name=row.name, number=int(row.number))
        elif row.kind == "reserved":
            messages[row.owner].reserved_range.add(start=int(row.number), end=int(row.number) + 1)
        elif row.kind == "field":
            _add_field(messages[row.owner], row, enums)
    return file


def _message_rows(message: descriptor_pb2.DescriptorProto, prefix: str) -> list[Row]:
    owner = prefix + message.name
    entries = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    rows = [Row("message", owner)]
    for field in message.field:
        oneof = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
        entry = entries.get(field.type_name.rpartition(".")[2])
        if entry is not None:
            key, value = (_type_name(part) for part in entry.field)
            kind, label = f"map<{key},{value}>", "map"
        else:
            kind, label = _type_name(field), "repeated" if field.label == _Field.LABEL_REPEATED else ""
        rows.append(Row("field", owner, str(field.number), field.name, kind, label, oneof))
    for span in message.reserved_range:
        rows += [Row("reserved", owner, str(number)) for number in range(span.start, span.end)]
    for enum in message.enum_type:
        rows += _enum_rows(enum, f"{owner}.")
    for nested in message.nested_type:
        if not nested.options.map_entry:
            rows += _message_rows(nested, f"{owner}.")
    return rows


def _enum_rows(enum: descriptor_pb2.EnumDescriptorProto, prefix: str) -> list[Row]:
    owner = prefix + enum.name
    return [Row("enum", owner), *(Row("value", owner, str(value.number), value.name) for value in enum.value)]


def _rpc_row(service: str, method: descriptor_pb2.MethodDescriptorProto) -> Row:
    streaming = {(False, False): "unary", (False, True): "server", (True, False): "client", (True, True): "bidi"}
    label = streaming[method.client_streaming, method.server_streaming]
    return Row("rpc", service, "", method.name, _local(method.input_type), label, "", _local(method.output_type))


def _type_name(field: descriptor_pb2.FieldDescriptorProto) -> str:
    return _local(field.type_name) if field.type_name else _SCALARS[field.type]


def _local(full_name: str) -> str:
    return full_name.removeprefix(f".{PACKAGE}.")


def _add_field(message: descriptor_pb2.DescriptorProto, row: Row, enums: set[str]) -> None:
    field = message.field.add(name=row.name, number=int(row.number))
    field.label = _Field.LABEL_REPEATED if row.label else _Field.LABEL_OPTIONAL
    if row.label == "map":
        entry = message.nested_type.add(name="".join(part.capitalize() for part in row.name.split("_")) + "Entry")
        entry.options.map_entry = True
        key, value = row.type.removeprefix("map<").removesuffix(">").split(",")
        _add_field(entry, Row("field", entry.name, "1", "key", key), enums)
        _add_field(entry, Row("field", entry.name, "2", "value", value), enums)
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{PACKAGE}.{row.owner}.{entry.name}"
    elif row.type in _SCALAR_NUMBERS:
        field.type = _SCALAR_NUMBERS[row.type]
    else:
        field.type = _Field.TYPE_ENUM if row.type in enums else _Field.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{row.type}"
    if row.oneof:
        names = [oneof.name for oneof in message.oneof_decl]
        if row.oneof not in names:
            message.oneof_decl.add(name=row.oneof)
            names.append(row.oneof)
        field.oneof_index = names.index(row.oneof)
