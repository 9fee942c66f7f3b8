"""The tables of `docs/quality.md`, written from the evidence alone between two marks; the words around are ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "quality.md"
_BEGIN, _END = "<!-- figures: python -m bench quality --page -->", "<!-- end of figures -->"


def rewritten(text: str, report: dict[str, Any]) -> str:
    """The page with its tables made anew; refuses a page without its marks."""
    if _BEGIN not in text or _END not in text:
        raise ValueError(f"{PAGE.name} lacks the marks {_BEGIN!r} and {_END!r}; tables go between them")
    before, rest = text.split(_BEGIN, 1)
    after = rest.split(_END, 1)[1]
    return before + _BEGIN + "\n\n" + tables(report) + "\n" + _END + after


def tables(report: dict[str, Any]) -> str:
    families = report["families"]
    lines = [
        "| family | static (limit) | emptiest first (limit) | fullest first (limit) | repacked | sums | autoscaler |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in families.values():
        summary, limits = row["summary"], row["limits"]
        static = f"{_mean(summary['static'])} ({limits['static']:.2f})" if "static" in summary else "–"
        cells = [row["about"], static]
        for scoring in ("emptiest", "fullest"):
            cells.append(f"{_spread(summary[scoring]['ratio'])} ({limits[scoring]:.2f})")
        cells.append(_mean(summary["repacked"]) if "repacked" in summary else "–")
        cells += [_mean(summary["rivals"][name]) if "rivals" in summary else "–" for name in ("sums", "autoscaler")]
        lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        "| family | evicted, % | later than boot + 3 cycles, % | service wait p99, s | bought back, % | missed |",
        "|---|---|---|---|---|---|",
    ]
    for row in families.values():
        both = [row["summary"][scoring] for scoring in ("emptiest", "fullest")]
        cells = [row["about"]]
        for name, scale, digits in (
            ("evicted", 100, 1),
            ("late", 100, 2),
            ("service_wait_p99", 1, 0),
            ("bought_back", 100, 1),
        ):
            cells.append(" / ".join(f"{scale * each[name]['mean']:.{digits}f}" for each in both))
        cells.append("; ".join(row["missed"]) or "nothing")
        lines.append("| " + " | ".join(cells) + " |")
    lines += _with_own_proportion(families)
    curves = {row["about"]: row["seeds"][0]["curve"] for row in families.values() if "curve" in row["seeds"][0]}
    if curves:
        shares = list(next(iter(curves.values())))
        lines += [
            "",
            "| dollars ÷ bound (evicted) at a budget of | " + " | ".join(f"{float(s):.0%}" for s in shares) + " |",
        ]
        lines.append("|---|" + "---|" * len(shares))
        for about, curve in curves.items():
            cells = [f"{curve[share]['ratio']:.3f} ({curve[share]['evicted']:.1%})" for share in shares]
            lines.append(f"| {about} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _with_own_proportion(families: dict[str, Any]) -> list[str]:
    """What the same pods cost where `prefer-own-proportion.yaml` was applied; no limit is held by it."""
    lines = [
        "",
        "| with `prefer-own-proportion.yaml` | emptiest first | fullest first | evicted, % | late, % "
        "| service wait p99, s |",
        "|---|---|---|---|---|---|",
    ]
    for row in families.values():
        if "own_proportion" not in row["summary"]:
            continue
        both = [row["summary"]["own_proportion"][scoring] for scoring in ("emptiest", "fullest")]
        cells = [row["about"], *(_spread(each["ratio"]) for each in both)]
        for name, scale, digits in (("evicted", 100, 1), ("late", 100, 2), ("service_wait_p99", 1, 0)):
            cells.append(" / ".join(f"{scale * each[name]['mean']:.{digits}f}" for each in both))
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _mean(figures: dict[str, float]) -> str:
    return f"{figures['mean']:.3f}"


def _spread(figures: dict[str, float]) -> str:
    if figures["least"] == figures["most"]:
        return _mean(figures)
    return f"{figures['mean']:.3f} [{figures['least']:.3f}, {figures['most']:.3f}]"
