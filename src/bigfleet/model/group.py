"""The gang identity of a co-location term. Owns only the text; receivers compare it and never take it apart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

NUL = "\x00"
# What parts of the text are told apart by. Names and values that Kubernetes accepts have none of it.
_MARKS = re.compile("[\x00,;= %]")
_VALUED = ("In", "NotIn")


def group_string(
    topology_key: str,
    match_labels: Mapping[str, str] | None,
    match_expressions: Iterable[tuple[str, str, Iterable[str]]] | None,
    namespace: str | None = None,
) -> str:
    """The group of a need; empty without a topology key.

    Both selector parts None means the term has no selector, which differs from an empty one. Expressions are
    (key, operator text, values). With a namespace, equal selectors in two namespaces are two gangs.
    """
    if not topology_key:
        return ""
    selector = ""
    if match_labels is not None or match_expressions is not None:
        labels = "".join(f"{_plain(key)}={_plain(value)}," for key, value in sorted((match_labels or {}).items()))
        expressions = sorted(
            (_plain(key), _plain(operator), _values(operator, sorted(values)))
            for key, operator, values in match_expressions or ()
        )
        selector = labels + ";" + "".join(f"{key} {operator} {values};" for key, operator, values in expressions)
    group = f"{_plain(topology_key)}{NUL}{selector}"
    return group if namespace is None else f"{group}{NUL}{_plain(namespace)}"


def _plain(text: str) -> str:
    """The text with its marks escaped, so that two different terms never read the same."""
    return _MARKS.sub(lambda found: f"%{ord(found.group()):02x}", text)


def _values(operator: str, values: list[str]) -> str:
    """No value and one empty value read the same; the one that the operator does not take is marked."""
    text = ",".join(map(_plain, values))
    return text if text or bool(values) == (operator in _VALUED) else "%"
