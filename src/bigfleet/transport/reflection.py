"""What a server speaks, told to tools that ask it: gRPC server reflection, v1 and v1alpha, of generated services.

The answers are the descriptors the wire modules carry. The protocol's two messages are described here, in a pool of
their own: the package that ships them would be one dependency more for a handful of fields.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

VERSIONS = ("grpc.reflection.v1", "grpc.reflection.v1alpha")
_METHOD = "ServerReflectionInfo"
_NOT_FOUND: int = grpc.StatusCode.NOT_FOUND.value[0]
_POOL = descriptor_pool.Default()
_TYPES = descriptor_pb2.FieldDescriptorProto
# As the protocol numbers them: name, number, scalar type or message, and whether there are many.
_Fields = tuple[tuple[str, int, int | str, bool], ...]
_MESSAGES: dict[str, _Fields] = {
    "Request": (
        ("host", 1, _TYPES.TYPE_STRING, False),
        ("file_by_filename", 3, _TYPES.TYPE_STRING, False),
        ("file_containing_symbol", 4, _TYPES.TYPE_STRING, False),
        ("list_services", 7, _TYPES.TYPE_STRING, False),
    ),
    "Response": (
        ("valid_host", 1, _TYPES.TYPE_STRING, False),
        ("original_request", 2, "Request", False),
        ("file_descriptor_response", 4, "Files", False),
        ("list_services_response", 6, "Services", False),
        ("error_response", 7, "Error", False),
    ),
    "Files": (("file_descriptor_proto", 1, _TYPES.TYPE_BYTES, True),),
    "Services": (("service", 1, "Service", True),),
    "Service": (("name", 1, _TYPES.TYPE_STRING, False),),
    "Error": (("error_code", 1, _TYPES.TYPE_INT32, False), ("error_message", 2, _TYPES.TYPE_STRING, False)),
}


def serve(server: grpc.aio.Server, services: Sequence[str]) -> None:
    """Answer for these services, which the wire modules loaded so far describe, and for reflection itself."""
    names = sorted([*services, *(f"{version}.ServerReflection" for version in VERSIONS)])

    async def answer(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        async for request in requests:
            yield _answered(request, names)

    for version in VERSIONS:
        handler = grpc.stream_stream_rpc_method_handler(
            answer, request_deserializer=_REQUEST.FromString, response_serializer=_RESPONSE.SerializeToString
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(f"{version}.ServerReflection", {_METHOD: handler}),)
        )


def _answered(request: Any, services: Sequence[str]) -> Any:
    answer = _RESPONSE(valid_host=request.host, original_request=request)
    try:
        if request.HasField("list_services"):
            for name in services:
                answer.list_services_response.service.add(name=name)
        elif request.HasField("file_by_filename"):
            _tell_file(answer, _POOL.FindFileByName(request.file_by_filename))
        elif request.HasField("file_containing_symbol"):
            _tell_file(answer, _POOL.FindFileContainingSymbol(request.file_containing_symbol))
        else:
            raise KeyError("extensions: there are none")
    except KeyError as error:
        answer.error_response.error_code = _NOT_FOUND
        answer.error_response.error_message = str(error.args[0] if error.args else error)
    return answer


def _tell_file(answer: Any, file: Any) -> None:
    """A file and everything it imports, itself first."""
    told: dict[str, bytes] = {}
    waiting = [file]
    while waiting:
        each = waiting.pop(0)
        if each.name not in told:
            told[each.name] = each.serialized_pb
            waiting += each.dependencies
    answer.file_descriptor_response.file_descriptor_proto.extend(told.values())


def _messages() -> tuple[Any, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="bigfleet/reflection.proto", package="bigfleet.reflection")
    file.syntax = "proto3"
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        choice = {"Request": 3, "Response": 4}.get(name)
        if choice is not None:
            message.oneof_decl.add(name="which")
        for field, number, kind, many in fields:
            label = _TYPES.LABEL_REPEATED if many else _TYPES.LABEL_OPTIONAL
            made = message.field.add(name=field, number=number, label=label)
            if isinstance(kind, str):
                made.type, made.type_name = _TYPES.TYPE_MESSAGE, f".bigfleet.reflection.{kind}"
            else:
                made.type = cast("Any", kind)
            if choice is not None and number >= choice:
                made.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = (pool.FindMessageTypeByName(f"bigfleet.reflection.{name}") for name in ("Request", "Response"))
    request, response = (message_factory.GetMessageClass(each) for each in found)
    return request, response


_REQUEST, _RESPONSE = _messages()
