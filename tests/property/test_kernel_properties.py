"""Any mix of scheduling, cancelling and stepping behaves like a sorted list of (instant, order of scheduling)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bigfleet.virtual.kernel import Kernel, Timer

operations = st.lists(
    st.one_of(
        st.tuples(st.just("after"), st.integers(0, 20)),
        st.tuples(st.just("cancel"), st.integers(0, 200)),
        st.tuples(st.just("step"), st.just(0)),
        st.tuples(st.just("run_for"), st.integers(0, 10)),
    ),
    max_size=200,
)


@given(operations)
def test_the_queue_agrees_with_a_sorted_list(program: list[tuple[str, int]]) -> None:
    kernel = Kernel()
    timers: list[Timer] = []
    waiting: dict[int, int] = {}
    ran: list[int] = []
    expected: list[int] = []
    clock = 0

    def expect_next(limit: int | None) -> bool:
        nonlocal clock
        if not waiting:
            return False
        due, ticket = min((due, ticket) for ticket, due in waiting.items())
        if limit is not None and due > limit:
            return False
        clock = due
        expected.append(ticket)
        del waiting[ticket]
        return True

    for kind, value in program:
        if kind == "after":
            ticket = len(timers)
            timers.append(kernel.after(value, lambda ticket=ticket: ran.append(ticket)))
            waiting[ticket] = clock + value
        elif kind == "cancel" and timers:
            ticket = value % len(timers)
            assert timers[ticket].cancel() == (waiting.pop(ticket, None) is not None)
        elif kind == "step":
            assert kernel.step() == expect_next(None)
        elif kind == "run_for":
            limit = clock + value
            while expect_next(limit):
                pass
            clock = limit
            kernel.run_for(value)
        kernel.validate()
        assert ran == expected
        assert kernel.now == clock
        assert kernel.pending == len(waiting)
        assert kernel.next_due == min(waiting.values(), default=None)
