"""The waits that tests and tools rely on: they end as soon as it is so, and say what they saw when it never is."""

import asyncio

import pytest

from tools.waiting import until, wait_until


async def test_the_first_answer_that_holds_is_returned() -> None:
    answers = iter([1, 2, 3])

    async def ask() -> int:
        return next(answers)

    assert await until(ask, lambda answer: answer > 1) == 2
    assert await until(lambda: next(answers)) == 3
    rest = iter(["", "said"])
    assert wait_until(lambda: next(rest)) == "said"


async def test_what_never_holds_fails_with_what_was_seen() -> None:
    with pytest.raises(AssertionError, match=r"not within 0.05 s: seven machines; last seen: 6"):
        await until(lambda: 6, lambda count: count == 7, seconds=0.05, what="seven machines")
    with pytest.raises(AssertionError, match=r"ready; last seen: the log"):
        wait_until(lambda: False, seconds=0.05, what="ready", evidence=lambda: "the log")


async def test_a_question_that_hangs_meets_the_limit() -> None:
    with pytest.raises(AssertionError, match="not within"):
        await until(asyncio.Event().wait, seconds=0.05)


async def test_a_timeout_of_the_question_itself_is_not_taken_for_the_limit() -> None:
    async def ask() -> bool:
        raise TimeoutError("of the call")

    with pytest.raises(TimeoutError, match="of the call"):
        await until(ask)
