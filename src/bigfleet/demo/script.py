"""`bigfleet demo --once`: the same scene without an audience. Does everything the keys do, and says how each ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any

from bigfleet.demo.narrate import Line
from bigfleet.demo.reasons import shortfall
from bigfleet.demo.scene import Scene
from bigfleet.demo.watching import Sight

# A step that takes longer has failed.
PATIENCE_SECONDS = 15.0
LOOK_SECONDS = 0.15


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one step ended."""

    step: str
    met: bool
    seconds: float
    nodes: int
    dollars_per_hour: float
    short: tuple[str, ...]

    def record(self) -> dict[str, Any]:
        return {**asdict(self), "seconds": round(self.seconds, 2), "dollars_per_hour": round(self.dollars_per_hour, 3)}


@dataclass(frozen=True, slots=True)
class Step:
    """Something the audience does, and when its demand counts as met."""

    title: str
    act: Callable[[Scene], Awaitable[object]]
    done: Callable[[Scene, Sight], bool]


def _met(scene: Scene, _: Sight) -> bool:
    return scene.met


def _met_and_repaired(scene: Scene, _: Sight) -> bool:
    return scene.met and scene.complete


def _all_given_back(scene: Scene, sight: Sight) -> bool:
    return scene.met and not sight.serving() and sight.dollars == 0


async def _drain_everything(scene: Scene) -> None:
    await scene.drain()
    await scene.drain()


async def _nothing(_: Scene) -> None:
    pass


STEPS = (
    Step("an ordinary day", _nothing, _met),
    Step("the stores burst", lambda scene: scene.burst("stores"), _met),
    Step("research bursts", lambda scene: scene.burst("research"), _met),
    Step("a zone fails", lambda scene: scene.fail_zone(), _met),
    Step("a critical job", lambda scene: scene.critical(), _met),
    Step("the zone is back", lambda scene: scene.repair_zones(), _met_and_repaired),
    Step("all work ends", _drain_everything, _all_given_back),
)


async def run_script(
    scene: Scene, tell: Callable[[Outcome, list[Line]], None], after: Callable[[Step], None] = lambda step: None
) -> list[Outcome]:
    """Every step, each with its decisions told as it ends."""
    outcomes = []
    for step in STEPS:
        told = scene.lines
        began = time.monotonic()
        await step.act(scene)
        sight = await _until(scene, step)
        outcome = Outcome(
            step.title,
            step.done(scene, sight),
            time.monotonic() - began,
            len(sight.serving()),
            sight.dollars,
            tuple(shortfall(need) for need in sight.unmet),
        )
        outcomes.append(outcome)
        fresh = scene.lines
        tell(outcome, fresh[: len(fresh) - len(told)])
        after(step)
    return outcomes


async def _until(scene: Scene, step: Step) -> Sight:
    """Look until the step is done, or patience is over."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    sight = await scene.look()
    while not step.done(scene, sight) and time.monotonic() < deadline:
        await asyncio.sleep(LOOK_SECONDS)
        sight = await scene.look()
    return sight
