"""Fits texts to a terminal: wraps at words under a hanging indent, and keeps a line's two ends apart. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

# Wrapping asks a console for its rules only; nothing is ever printed on this one.
_RULES = Console(width=80, quiet=True)


def wrapped(lead: Text, body: Text, width: int) -> list[Text]:
    """`body` after `lead`, its further lines beginning where its first does."""
    indent = lead.cell_len
    lines = list(body.wrap(_RULES, max(1, width - indent)))
    for line in lines:
        line.rstrip()
    return [(lead.copy() if place == 0 else Text(" " * indent)).append_text(line) for place, line in enumerate(lines)]


def whole(entries: Iterable[list[Text]], height: int) -> list[Text]:
    """As many entries from the first as there is room for, each with all its lines."""
    shown: list[Text] = []
    for entry in entries:
        if len(shown) + len(entry) > height:
            break
        shown += entry
    return shown


def apart(left: Text, right: Text, width: int) -> Text:
    """One line with a text at each end."""
    return Text.assemble(left, " " * max(1, width - left.cell_len - right.cell_len), right)
