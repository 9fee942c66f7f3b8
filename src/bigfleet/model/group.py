"""The gang identity of a co-location term. Owns only the text; receivers compare it and never take it apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

NUL = "\x00"


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
        labels = "".join(f"{key}={value}," for key, value in sorted((match_labels or {}).items()))
        expressions = sorted(
            (key, operator, ",".join(sorted(values))) for key, operator, values in match_expressions or ()
        )
        selector = labels + ";" + "".join(f"{key} {operator} {values};" for key, operator, values in expressions)
    group = f"{topology_key}{NUL}{selector}"
    return group if namespace is None else f"{group}{NUL}{namespace}"
