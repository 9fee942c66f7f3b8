"""Every decision is on the screen for a moment, however small the screen and however many come at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from bigfleet.demo.feed import Feed


def sentence(number: int, lines: int = 1) -> tuple[int, list[Text]]:
    return number, [Text(f"{number}.{line}") for line in range(lines)]


def words(lines: list[Text]) -> list[str]:
    return [line.plain for line in lines]


def test_what_does_not_fit_waits_for_the_next_draw_and_the_newest_stay() -> None:
    feed = Feed()
    told = [sentence(5), sentence(4), sentence(3), sentence(2), sentence(1)]  # newest first
    assert words(feed.choose(told, 2)) == ["2.0", "1.0"]
    assert words(feed.choose(told, 2)) == ["4.0", "3.0"]
    assert words(feed.choose(told, 2)) == ["5.0", "4.0"]
    assert words(feed.choose(told, 2)) == ["5.0", "4.0"]


def test_one_that_grew_does_not_push_out_one_that_was_never_drawn() -> None:
    feed = Feed()
    feed.choose([sentence(2), sentence(1)], 2)
    assert words(feed.choose([sentence(1), sentence(2), sentence(3)], 2)) == ["3.0", "1.0"]


def test_one_that_is_taller_than_the_screen_holds_nobody_up() -> None:
    feed = Feed()
    feed.choose([sentence(2), sentence(1, lines=9)], 3)
    assert words(feed.choose([sentence(2), sentence(1, lines=9)], 3)) == ["2.0"]


@given(
    heights=st.lists(st.integers(1, 4), min_size=1, max_size=40),
    arrivals=st.lists(st.integers(0, 6), min_size=1, max_size=20),
    room=st.integers(4, 9),
)
def test_every_sentence_is_drawn_whole_before_the_story_rests(
    heights: list[int], arrivals: list[int], room: int
) -> None:
    feed, told, seen = Feed(), [], set()
    numbers = iter(range(1, len(heights) + 1))
    for come in [*arrivals, len(heights), *[0] * len(heights)]:
        told = [*reversed([sentence(n, heights[n - 1]) for _, n in zip(range(come), numbers, strict=False)]), *told]
        drawn = words(feed.choose(told, room))
        assert len(drawn) <= room
        for number, lines in told:
            first = words(lines)[0]
            if first in drawn:
                at = drawn.index(first)
                assert drawn[at : at + len(lines)] == words(lines)
                seen.add(number)
    assert seen == set(range(1, len(heights) + 1))
