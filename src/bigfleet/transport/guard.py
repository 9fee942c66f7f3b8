"""What happens around every RPC of a server: identity first, then the handler, then an honest status.

A caller whose certificate does not name exactly one identity is refused before any handler runs. An exception that a
handler lets escape is logged with its traceback and answered as INTERNAL without its text, which may hold a secret.
Handlers must be coroutine functions or asynchronous generators; thread-pool handlers are not used in this project.
"""

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import structlog

from bigfleet.transport.identity import IdentityError, peer_identity

log = structlog.get_logger(__name__)

_Context = grpc.aio.ServicerContext[Any, Any]
_HEALTH = "/grpc.health.v1.Health/"


class Guard(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Wraps each handler; `errors` counts answers other than OK by (method, status name)."""

    def __init__(self, *, require_identity: bool, errors: Counter[tuple[str, str]]) -> None:
        self._require_identity = require_identity
        self._errors = errors

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        return None if handler is None else self._guarded(handler_call_details.method, handler)

    def _guarded(self, method: str, handler: Any) -> Any:
        request_codec = (handler.request_deserializer, handler.response_serializer)
        if handler.request_streaming and handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(self._streaming(method, handler.stream_stream), *request_codec)
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(self._streaming(method, handler.unary_stream), *request_codec)
        if handler.request_streaming:
            return grpc.stream_unary_rpc_method_handler(self._single(method, handler.stream_unary), *request_codec)
        return grpc.unary_unary_rpc_method_handler(self._single(method, handler.unary_unary), *request_codec)

    def _single(self, method: str, behaviour: Any) -> Callable[[Any, _Context], Awaitable[Any]]:
        async def guarded(request: Any, context: _Context) -> Any:
            await self._admit(method, context)
            try:
                answer = await behaviour(request, context)
            except Exception as error:
                await self._failed(method, context, error)
            self._count(method, context)
            return answer

        return guarded

    def _streaming(self, method: str, behaviour: Any) -> Callable[[Any, _Context], Any]:
        # A handler that writes through the context is a coroutine function: exactly the single-answer shape.
        if not inspect.isasyncgenfunction(behaviour):
            return self._single(method, behaviour)

        async def guarded(request: Any, context: _Context) -> AsyncIterator[Any]:
            await self._admit(method, context)
            try:
                async for answer in behaviour(request, context):
                    yield answer
            except Exception as error:
                await self._failed(method, context, error)
            self._count(method, context)

        return guarded

    async def _admit(self, method: str, context: _Context) -> None:
        if not self._require_identity or method.startswith(_HEALTH):
            return
        try:
            peer_identity(context)
        except IdentityError as error:
            self._errors[method, grpc.StatusCode.PERMISSION_DENIED.name] += 1
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))

    async def _failed(self, method: str, context: _Context, error: Exception) -> None:
        if isinstance(error, grpc.aio.AbortError):
            self._count(method, context)
            raise error
        if context.cancelled() or context.done():
            raise asyncio.CancelledError from error
        log.error("rpc failed", method=method, exc_info=error)
        self._errors[method, grpc.StatusCode.INTERNAL.name] += 1
        await context.abort(grpc.StatusCode.INTERNAL, f"{method} failed; the server's log says why")

    def _count(self, method: str, context: _Context) -> None:
        code = _status_name(context.code())
        if code != grpc.StatusCode.OK.name:
            self._errors[method, code] += 1


_BY_NUMBER = {code.value[0]: code.name for code in grpc.StatusCode}


def _status_name(code: object) -> str:
    # grpcio answers with the enum or its number, depending on how the status was set; unset is 0 or None.
    if isinstance(code, grpc.StatusCode):
        return code.name
    return _BY_NUMBER.get(code if isinstance(code, int) else 0, grpc.StatusCode.UNKNOWN.name)
