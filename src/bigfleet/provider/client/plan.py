"""What to ask next while listing a provider: pages, one whole answer, or one answer per state. Pure.

Providers that know our continuation cursor say `more` on a capped page; the others echo the head revision, and a capped
page of theirs cannot be continued (feeding the revision back would skip the rest). So an exactly full page without
`more` proves nothing, and the plan starts over with an uncapped List, then state by state when that does not fit.
The cursor the plan ends with never lies past a record that was not handed out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

ALL_STATES = (1, 2, 3, 4, 5, 6, 7, 8)


class Paging(Enum):
    """What has been learnt about a provider."""

    UNKNOWN = "unknown"
    CONTINUATION = "continuation"
    WHOLE = "whole"
    PER_STATE = "per-state"


class PlanError(Exception):
    """The provider's answers cannot be turned into a complete listing."""


@dataclass(frozen=True, slots=True)
class ListQuery:
    """One List call."""

    states: tuple[int, ...] = ()
    max_results: int = 0
    since: bytes = b""


class ListPlan:
    """Yields one query after the other; `query` is None once the listing is complete."""

    def __init__(
        self,
        *,
        page_size: int,
        paging: Paging = Paging.UNKNOWN,
        since: bytes = b"",
        states: tuple[int, ...] = (),
    ) -> None:
        self.paging = paging
        self.cursor = since
        self.delta = bool(since)
        self._page_size = page_size
        self._states = states
        self._remaining: list[int] = []
        self._split = False
        self._answers = 0
        self.query: ListQuery | None = None
        if self.delta:
            self._ask_delta()
        else:
            self._ask_everything()

    @property
    def covers_everything(self) -> bool:
        """Whether a machine that was not handed out is not there (true of a complete listing of all states only)."""
        return not self.delta and not self._states

    @property
    def inventory_wide(self) -> bool:
        """Whether all states are asked for, so that the cursor it ends with may be resumed from."""
        return not self._states

    def page(self, listed: int, revision: bytes, more: bool) -> None:
        """The answer to `query` held `listed` machines, this revision and this `more`."""
        asked = self._asked()
        self._answers += 1
        if more:
            self._continue(asked, revision)
        elif asked.max_results and listed >= asked.max_results and self.paging is not Paging.CONTINUATION:
            self._ask_whole()
        elif self._remaining:
            self._note_head(revision)
            self._ask_next_state()
        else:
            self._finish(asked, revision)

    def too_large(self) -> None:
        """The answer to `query` did not fit a message."""
        asked = self._asked()
        if asked.max_results > 1:
            self._page_size = max(1, asked.max_results // 4)
            self.query = ListQuery(asked.states, self._page_size, asked.since)
        elif self.delta:
            # A provider that lost our cursor answers with everything; then a listing from scratch is what we want.
            self.delta = False
            self._ask_everything()
        elif len(asked.states) != 1:
            self._ask_per_state()
        else:
            raise PlanError(
                f"the machines in state {asked.states[0]} alone do not fit one message and the provider cannot page; "
                "it must support the continuation cursor"
            )

    def _asked(self) -> ListQuery:
        if self.query is None:
            raise PlanError("the listing is already complete")
        return self.query

    def _ask_delta(self) -> None:
        # A head-echo provider capped inside a delta would skip the rest for ever: cap only where `more` is known.
        cap = self._page_size if self.paging is Paging.CONTINUATION else 0
        self.query = ListQuery(self._states, cap, self.cursor)

    def _ask_everything(self) -> None:
        if self.paging is Paging.PER_STATE:
            self._ask_per_state()
        elif self.paging is Paging.WHOLE:
            self._ask_whole()
        else:
            self._ask_page()

    def _ask_page(self) -> None:
        self.query = ListQuery(self._states, self._page_size)

    def _ask_whole(self) -> None:
        self.query = ListQuery(self._states)

    def _ask_per_state(self) -> None:
        self.paging = Paging.PER_STATE
        self._split, self._answers = True, 0
        self._remaining = list(self._states or ALL_STATES)
        self._ask_next_state()

    def _ask_next_state(self) -> None:
        self.query = ListQuery((self._remaining.pop(0),))

    def _continue(self, asked: ListQuery, revision: bytes) -> None:
        if not revision or revision == asked.since:
            raise PlanError(f"the provider announced more machines but its cursor {revision!r} did not move on")
        self.paging = Paging.CONTINUATION
        self._note_head(revision)
        self.query = ListQuery(asked.states, asked.max_results or self._page_size, revision)

    def _finish(self, asked: ListQuery, revision: bytes) -> None:
        if not asked.max_results and not self.delta and self.paging is Paging.UNKNOWN:
            self.paging = Paging.WHOLE
        self._note_head(revision)
        self.query = None

    def _note_head(self, revision: bytes) -> None:
        # The answers of a listing split by state were read at different heads: only the first is safe to resume from.
        if not self._split or self._answers == 1:
            self.cursor = revision
