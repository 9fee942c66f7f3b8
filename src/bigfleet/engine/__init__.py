"""The decision core of a shard: `Engine.step` turns machine and demand deltas into actions (`docs/engine.md`).

The engine itself is imported when it is first named: its kernels bring Numba along, which takes seconds, and a command
that only reads a policy or prints its help has no use for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bigfleet.engine.engine import Engine, Reporter, StepResult

__all__ = ["Engine", "Reporter", "StepResult"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from bigfleet.engine import engine

    return getattr(engine, name)
