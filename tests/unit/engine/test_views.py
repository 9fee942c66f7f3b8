"""Views of columns, as several engines of one process make them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from bigfleet.engine.decide.world import Bindings
from bigfleet.engine.kernels import view


def test_a_view_that_another_thread_is_about_to_learn_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two engines begin at once, each in its own thread: neither may see half of what the other is finding out."""
    whole = [column.name for column in view._columns(Bindings)]
    monkeypatch.setattr(view, "_HINTS", {})
    monkeypatch.setattr(view, "_COLUMNS", {})
    asked = view.get_type_hints
    seen: list[list[str]] = []

    def slowly(*arguments: Any, **named: Any) -> Any:
        if not seen:
            seen.append([])
            with ThreadPoolExecutor(1) as other:
                seen.append([column.name for column in other.submit(view._columns, Bindings).result()])
        return asked(*arguments, **named)

    monkeypatch.setattr(view, "get_type_hints", slowly)
    assert [column.name for column in view._columns(Bindings)] == whole == seen[1]
