"""When a shard may decide: with which fleet it does not wait for compiled kernels, and what it says when it does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import CapturingLogger

import bigfleet.engine.engine  # noqa: F401  the kernels that are counted
from bigfleet.engine.kernels import jit
from bigfleet.shard.runtime.kernel_start import UNCOMPILED_MACHINES, KernelStart


class Fleet:
    """How many machines a shard knows, and whether that is all."""

    def __init__(self, machines: int = 0, *, listed: bool = False) -> None:
        self.machines, self.listed = machines, listed
        self.log = CapturingLogger()
        self.start = KernelStart(lambda: self.machines, lambda: self.listed, self.log)

    async def may_decide(self) -> bool:
        step = asyncio.ensure_future(self.start.until_usable())
        for _ in range(5):
            await asyncio.sleep(0)
        if step.done():
            step.result()
            return True
        step.cancel()
        return False

    def logged(self, level: str) -> list[str]:
        return [str(call.args[0]) for call in self.log.calls if call.method_name == level]


async def at_once(work: Callable[[], None]) -> None:
    work()


async def test_a_small_fleet_is_decided_about_before_anything_is_compiled() -> None:
    fleet = Fleet(UNCOMPILED_MACHINES, listed=True)
    assert fleet.start.waiting_for() is None and await fleet.may_decide()
    assert not fleet.start.compiled


async def test_one_machine_more_waits_and_says_for_what() -> None:
    fleet = Fleet(UNCOMPILED_MACHINES + 1, listed=True)
    assert not await fleet.may_decide()
    said = fleet.start.waiting_for() or ""
    assert f"0 of {jit.kernel_count()} are done" in said and "2001 machines" in said and "`bigfleet warm`" in said


async def test_a_fleet_that_is_being_decided_about_may_grow() -> None:
    fleet = Fleet(10, listed=True)
    assert await fleet.may_decide()
    fleet.machines = 5 * UNCOMPILED_MACHINES
    assert fleet.start.waiting_for() is None and await fleet.may_decide()


async def test_steps_before_the_first_list_commit_to_nothing() -> None:
    fleet = Fleet(0, listed=False)
    assert await fleet.may_decide()
    fleet.machines, fleet.listed = UNCOMPILED_MACHINES + 1, True
    assert fleet.start.waiting_for() is not None and not await fleet.may_decide()


async def test_a_waiting_step_goes_on_once_kernels_are_compiled() -> None:
    fleet = Fleet(UNCOMPILED_MACHINES + 1, listed=True)
    step = asyncio.ensure_future(fleet.start.until_usable())
    fleet.start.begin()
    await fleet.start.run(at_once)
    await step
    assert fleet.start.compiled and fleet.start.waiting_for() is None and jit.compiled()
    assert fleet.logged("info")[-1] == "engine warm"


async def test_where_nothing_can_be_compiled_a_small_fleet_goes_on_and_a_larger_one_ends_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(_: Any) -> None:
        raise RuntimeError("no such instruction")

    switched: list[bool] = []
    monkeypatch.setattr(jit, "compiled", lambda: False)
    monkeypatch.setattr(jit, "prepare", broken)
    monkeypatch.setattr(jit, "switch", lambda: switched.append(True))
    monkeypatch.setattr(jit, "STORE", None)
    small, large = Fleet(5, listed=True), Fleet(UNCOMPILED_MACHINES + 1, listed=True)
    for fleet in (small, large):
        await fleet.start.run(at_once)
        assert len(fleet.logged("error")) == 1 and not fleet.start.compiled
    assert await small.may_decide() and small.start.waiting_for() is None
    assert "no such instruction" in (large.start.waiting_for() or "")
    with pytest.raises(RuntimeError, match="no such instruction"):
        await large.may_decide()
    assert not switched, "kernels that cannot be compiled must stay plain Python"
    assert any("cannot be kept" in line for line in small.logged("warning"))
