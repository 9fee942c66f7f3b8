"""Engines that change kernels in the middle, in a process of their own: `python -m tests.strategies.switching FIRST N`.

Every fleet is played three times: by plain Python all the way, by compiled kernels all the way, and by an engine that
goes over from one to the other between two steps. Prints, as one JSON line, how far they went and which differ.
"""

from __future__ import annotations

import json
import sys

from bigfleet.engine.kernels import jit
from tests.oracle.implementations import EngineRows
from tests.oracle.step import Oracle
from tests.strategies.fleets import Size, StepInput, play

SIZE = Size(32, 8, 8)


def main(first: int, fleets: int) -> None:
    plays = [[step for step, _ in play(seed, SIZE, Oracle())] for seed in range(first, first + fleets)]
    plays = [steps for steps in plays if len(steps) > 1]
    jit.interpret()
    plain = [_answers(EngineRows(), steps) for steps in plays]
    engines = [EngineRows() for _ in plays]
    switched = [_answers(engine, steps[: len(steps) // 2]) for engine, steps in zip(engines, plays, strict=True)]
    uncompiled_until_here = not any(each.is_compiled for each in jit._KERNELS)
    jit.prepare()
    still_plain = not any(each.is_compiled for each in jit._KERNELS)
    jit.switch()
    for answers, engine, steps in zip(switched, engines, plays, strict=True):
        answers += _answers(engine, steps[len(steps) // 2 :])
    compiled = [_answers(EngineRows(), steps) for steps in plays]
    told = {
        "plays": len(plays),
        "steps": sum(map(len, plays)),
        "actions": sum(answer.count(b"machine=") for answers in plain for answer in answers),
        "uncompiled_until_here": uncompiled_until_here,
        "still_plain_after_prepare": still_plain,
        "compiled_in_the_end": jit.compiled(),
        "switched_differ": [n for n, (a, b) in enumerate(zip(plain, switched, strict=True)) if a != b],
        "compiled_differ": [n for n, (a, b) in enumerate(zip(plain, compiled, strict=True)) if a != b],
    }
    print(json.dumps(told))


def _answers(engine: EngineRows, steps: list[StepInput]) -> list[bytes]:
    """What each step decided, to the last digit."""
    return [repr(step.feed(engine)).encode() for step in steps]


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
