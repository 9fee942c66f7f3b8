"""What a shard uses to talk to providers: six calls, typed errors, listings that parse only what changed."""

from bigfleet.provider.client.client import CallLimits, ProviderClient
from bigfleet.provider.client.errors import (
    Busy,
    Denied,
    Fenced,
    FrameTooLarge,
    Invalid,
    Malformed,
    NotFound,
    ProviderError,
    RateLimited,
    Refused,
    SoldOut,
    Throttled,
    TimedOut,
    Unavailable,
    Unimplemented,
    Unreachable,
)
from bigfleet.provider.client.fence import Fence, FencingToken, GivenFences, TokenSource, Unfenced
from bigfleet.provider.client.inventory import Batch, InventoryIndex
from bigfleet.provider.client.listing import Listing, ListSummary
from bigfleet.provider.client.metrics import RpcMetrics
from bigfleet.provider.client.plan import ListQuery, Paging
from bigfleet.provider.client.registry import ProviderEndpoint, ProviderRegistry
from bigfleet.provider.client.retry import NO_RETRY, RetryPolicy, may_retry, pause_before_retry

__all__ = [
    "NO_RETRY",
    "Batch",
    "Busy",
    "CallLimits",
    "Denied",
    "Fence",
    "Fenced",
    "FencingToken",
    "FrameTooLarge",
    "GivenFences",
    "Invalid",
    "InventoryIndex",
    "ListQuery",
    "ListSummary",
    "Listing",
    "Malformed",
    "NotFound",
    "Paging",
    "ProviderClient",
    "ProviderEndpoint",
    "ProviderError",
    "ProviderRegistry",
    "RateLimited",
    "Refused",
    "RetryPolicy",
    "RpcMetrics",
    "SoldOut",
    "Throttled",
    "TimedOut",
    "TokenSource",
    "Unavailable",
    "Unfenced",
    "Unimplemented",
    "Unreachable",
    "may_retry",
    "pause_before_retry",
]
