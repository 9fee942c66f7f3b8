"""The six RPCs of CapacityProvider on top of a runtime: messages in, bytes out, one status code per refusal.

Answers leave as cached bytes, so nothing is encoded twice. When callers have certificates, a mutation may only name
the shard its certificate names. The bootstrap blob is never part of a message or a log line.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc
import structlog

from bigfleet.model import names
from bigfleet.provider.kit.core.events import (
    ConfigureRequested,
    CreateRequested,
    DeleteRequested,
    DrainRequested,
    Refusal,
    Request,
)
from bigfleet.provider.kit.core.records import TEXT_LIMIT, Token
from bigfleet.provider.kit.runtime import RefusedError, Runtime
from bigfleet.transport import Kind as Role
from bigfleet.transport import require
from bigfleet.wire import provider_pb2 as pb

log = structlog.get_logger(__name__)

SERVICE = "bigfleet.v1alpha1.CapacityProvider"
CODE_OF: Mapping[Refusal, grpc.StatusCode] = {
    Refusal.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    Refusal.UNSUPPORTED: grpc.StatusCode.UNIMPLEMENTED,
    Refusal.FENCED: grpc.StatusCode.FAILED_PRECONDITION,
    Refusal.UNKNOWN: grpc.StatusCode.NOT_FOUND,
    # FAILED_PRECONDITION would tell the shard that it is a zombie; everything else is INTERNAL in this contract.
    Refusal.OUT_OF_POSITION: grpc.StatusCode.INTERNAL,
    Refusal.SOLD_OUT: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
_Context = grpc.aio.ServicerContext[Any, Any]
_Fenced = pb.CreateRequest | pb.ConfigureRequest | pb.DrainRequest | pb.DeleteRequest


class ProviderServicer:
    """Answers for one runtime."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def handler(self) -> grpc.GenericRpcHandler[Any, Any]:
        """The service, ready for `Server.grpc.add_generic_rpc_handlers`."""
        methods: dict[str, tuple[Any, Callable[[Any, _Context], Awaitable[bytes]]]] = {
            "Create": (pb.CreateRequest, self.create),
            "Configure": (pb.ConfigureRequest, self.configure),
            "Drain": (pb.DrainRequest, self.drain),
            "Delete": (pb.DeleteRequest, self.delete),
            "Get": (pb.MachineRef, self.get),
            "List": (pb.ListFilter, self.list),
        }
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                self._counted(name, answer), request_deserializer=message.FromString
            )
            for name, (message, answer) in methods.items()
        }
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    async def create(self, request: pb.CreateRequest, context: _Context) -> bytes:
        return await self._mutate("Create", request, CreateRequested(request.machine_id, _token(request)), context)

    async def configure(self, request: pb.ConfigureRequest, context: _Context) -> bytes:
        event = ConfigureRequested(
            request.machine_id,
            request.cluster_id,
            request.bootstrap_blob,
            dict(request.shard_metadata),
            _token(request),
        )
        return await self._mutate("Configure", request, event, context)

    async def drain(self, request: pb.DrainRequest, context: _Context) -> bytes:
        event = DrainRequested(request.machine_id, request.grace_period_seconds, _token(request))
        return await self._mutate("Drain", request, event, context)

    async def delete(self, request: pb.DeleteRequest, context: _Context) -> bytes:
        return await self._mutate("Delete", request, DeleteRequested(request.machine_id, _token(request)), context)

    async def get(self, request: pb.MachineRef, context: _Context) -> bytes:
        await require(context, Role.SHARD, Role.ADMIN, Role.READONLY)
        if not 0 < len(request.id) <= TEXT_LIMIT:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"id must have 1 to {TEXT_LIMIT} characters")
        record = self._runtime.core.get(request.id)
        if record is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"machine {request.id[:80]!r} is not known here")
        log.debug("Get", machine_id=record.id, state=record.state.name)
        answer = self._runtime.codec.machine(record)
        await self._runtime.settled()
        return answer

    async def list(self, request: pb.ListFilter, context: _Context) -> bytes:
        await require(context, Role.SHARD, Role.ADMIN, Role.READONLY)
        if request.max_results < 0:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"max_results {request.max_results} is negative; 0 means no limit"
            )
        page = self._runtime.core.page(request.states, request.max_results, request.since_revision)
        log.debug("List", machines=len(page.machines), removed=len(page.removed_ids), full=page.full, more=page.more)
        answer = self._runtime.codec.page(page)
        await self._runtime.settled()
        return answer

    async def _mutate(self, method: str, request: _Fenced, event: Request, context: _Context) -> bytes:
        caller = await require(context, Role.SHARD, Role.ADMIN)
        if caller is not None and caller.kind is Role.SHARD and request.shard_id not in ("", caller.name):
            await context.abort(
                grpc.StatusCode.PERMISSION_DENIED,
                f"shard_id {request.shard_id[:80]!r} is not the caller's, which is {caller}",
            )
        facts = {
            "machine_id": request.machine_id[:200],
            "shard_id": request.shard_id[:200],
            "epoch": request.shard_epoch,
            "sequence": request.sequence_number,
        }
        try:
            accepted = await self._runtime.submit(event)
        except RefusedError as refused:
            code = CODE_OF[refused.refusal]
            log.warning(f"{method} refused", code=code.name, reason=str(refused), **facts)
            trailers = ((names.REASON, names.SOLD_OUT),) if refused.refusal is Refusal.SOLD_OUT else ()
            await context.abort(code, str(refused), trailing_metadata=trailers)
        log.info(method, operation_id=accepted.operation_id, state=accepted.machine.state.name, **facts)
        return self._runtime.codec.acknowledgement(accepted.operation_id, accepted.machine)

    def _counted(self, method: str, answer: Callable[[Any, _Context], Awaitable[bytes]]) -> Any:
        metrics = self._runtime.metrics

        async def counted(request: Any, context: _Context) -> bytes:
            started = time.monotonic()
            code = "OK"
            try:
                return await answer(request, context)
            except grpc.aio.AbortError:
                code = _name(context.code())
                raise
            except Exception:
                code = grpc.StatusCode.INTERNAL.name
                raise
            finally:
                metrics.answered(method, code, time.monotonic() - started)

        return counted


def _token(request: _Fenced) -> Token:
    return Token(request.shard_id, request.shard_epoch, request.sequence_number)


_BY_NUMBER = {code.value[0]: code.name for code in grpc.StatusCode}


def _name(code: object) -> str:
    # grpcio gives the enum or its number, depending on how the status was set.
    return code.name if isinstance(code, grpc.StatusCode) else _BY_NUMBER.get(code, "UNKNOWN")
