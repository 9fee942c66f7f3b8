"""Listing plans towards the three kinds of provider: continuation cursor, head echo, and no cursor at all."""

from __future__ import annotations

import pytest

from bigfleet.provider.client.plan import ALL_STATES, ListPlan, ListQuery, Paging, PlanError


def test_a_small_fleet_takes_one_capped_call_and_teaches_nothing() -> None:
    plan = ListPlan(page_size=100)
    assert plan.query == ListQuery((), 100, b"")
    plan.page(99, b"r9", False)
    assert plan.query is None
    assert (plan.cursor, plan.paging, plan.covers_everything) == (b"r9", Paging.UNKNOWN, True)


def test_a_provider_that_says_more_is_followed_to_its_end() -> None:
    plan = ListPlan(page_size=2)
    plan.page(2, b"r2", True)
    assert plan.query == ListQuery((), 2, b"r2")
    plan.page(2, b"r4", True)
    plan.page(2, b"r6", False)  # exactly full, and known to say `more` when there is more
    assert plan.query is None
    assert (plan.cursor, plan.paging, plan.covers_everything) == (b"r6", Paging.CONTINUATION, True)


def test_a_full_page_without_more_proves_nothing_so_everything_is_asked_for_at_once() -> None:
    plan = ListPlan(page_size=2)
    plan.page(2, b"head", False)
    assert plan.query == ListQuery()
    plan.page(5, b"head2", False)
    assert plan.query is None
    assert (plan.cursor, plan.paging) == (b"head2", Paging.WHOLE)


def test_what_does_not_fit_is_asked_for_by_state_and_resumed_from_the_first_head() -> None:
    plan = ListPlan(page_size=2, paging=Paging.WHOLE)
    assert plan.query == ListQuery()
    plan.too_large()
    asked = []
    while plan.query is not None:
        asked.append(plan.query)
        plan.page(10, f"head{len(asked)}".encode(), False)
    assert asked == [ListQuery((state,)) for state in ALL_STATES]
    assert (plan.cursor, plan.paging, plan.covers_everything) == (b"head1", Paging.PER_STATE, True)


def test_a_state_that_does_not_fit_either_is_an_error_that_says_what_is_needed() -> None:
    plan = ListPlan(page_size=2, paging=Paging.PER_STATE)
    with pytest.raises(PlanError, match=r"state 1 alone do not fit.*continuation cursor"):
        plan.too_large()


def test_pages_that_do_not_fit_shrink_and_go_on_where_they_were() -> None:
    plan = ListPlan(page_size=100)
    plan.page(100, b"r1", True)
    plan.too_large()
    assert plan.query == ListQuery((), 25, b"r1")


def test_an_incremental_listing_is_capped_only_where_more_is_known() -> None:
    assert ListPlan(page_size=7, since=b"r").query == ListQuery((), 0, b"r")
    plan = ListPlan(page_size=7, since=b"r", paging=Paging.CONTINUATION)
    assert plan.query == ListQuery((), 7, b"r")
    plan.page(7, b"r7", True)
    plan.page(1, b"r8", False)
    assert (plan.query, plan.cursor, plan.covers_everything) == (None, b"r8", False)


def test_a_delta_too_large_to_send_means_our_cursor_was_lost_and_a_listing_from_scratch_follows() -> None:
    plan = ListPlan(page_size=7, since=b"old")
    plan.too_large()
    assert plan.query == ListQuery((), 7, b"")
    plan.page(3, b"new", False)
    assert (plan.cursor, plan.covers_everything) == (b"new", True)


def test_listing_some_states_never_claims_to_cover_everything() -> None:
    plan = ListPlan(page_size=7, states=(3, 5))
    assert plan.query == ListQuery((3, 5), 7, b"")
    plan.page(1, b"r", False)
    assert not plan.covers_everything
    assert not plan.inventory_wide


@pytest.mark.parametrize("revision", [b"", b"r1"])
def test_a_cursor_that_stands_still_is_refused_instead_of_asked_for_ever(revision: bytes) -> None:
    plan = ListPlan(page_size=2)
    plan.page(2, b"r1", True)
    with pytest.raises(PlanError, match="did not move on"):
        plan.page(2, revision, True)


def test_a_finished_plan_takes_no_further_answers() -> None:
    plan = ListPlan(page_size=2)
    plan.page(0, b"", False)
    with pytest.raises(PlanError, match="already complete"):
        plan.page(0, b"", False)
