"""The service's calls as gRPC handlers, made from the contract's own descriptor.

Reports are handed over raw beside their parsed form, and answers to them come as bytes: what is kept is not rendered
twice.
"""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass

from bigfleet.coordinator.server.service import CoordinatorService
from bigfleet.wire import coordinator_pb2

SERVICE = "bigfleet.v1alpha1.Coordinator"
RAW = "ReportShard"


def coordinator_handlers(service: CoordinatorService) -> grpc.GenericRpcHandler[Any, Any]:
    described = coordinator_pb2.DESCRIPTOR.services_by_name["Coordinator"]
    return grpc.method_handlers_generic_handler(
        SERVICE, {method.name: _handler(service, method) for method in described.methods}
    )


def _handler(service: CoordinatorService, method: Any) -> Any:
    behaviour = getattr(service, method.name)
    if method.name == RAW:
        return grpc.unary_unary_rpc_method_handler(behaviour, _with_raw, _as_is)
    request, response = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    kinds = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
    }
    make: Any = kinds[method.client_streaming, method.server_streaming]
    return make(behaviour, request.FromString, response.SerializeToString)


def _with_raw(raw: bytes) -> tuple[bytes, coordinator_pb2.ShardReport]:
    return raw, coordinator_pb2.ShardReport.FromString(raw)


def _as_is(answer: bytes) -> bytes:
    return answer
