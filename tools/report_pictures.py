"""Draw the pictures of docs/simulation.md from real runs: `python tools/report_pictures.py docs/images`.

Runs are deterministic, so the pictures are too; a test draws them again and compares.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from bigfleet.sim import library
from bigfleet.sim.report import render

PICTURES = {
    "simulation-states.svg": ("idle-release", "Machines by state"),
    "simulation-dollars.svg": ("idle-release", "Dollars per hour"),
}
_STYLE = (
    "<style>text{fill:#667080;font:11px system-ui,sans-serif}.grid{stroke:#dfe3e8;stroke-width:1}"
    ".key{font-size:12px}</style><rect width='100%' height='100%' fill='#ffffff'/>"
)
_KEY = re.compile(r'<span class="key"><i style="background:(#[0-9a-f]+)[^"]*"></i>([^<]*)</span>')


def pictures() -> dict[str, str]:
    """File name to content."""
    pages = {}
    for scenario in {name for name, _ in PICTURES.values()}:
        finished = library.play(library.find(scenario))
        pages[scenario] = render(finished.run, finished.summary, finished.baseline)
    return {file: _picture(pages[scenario], title) for file, (scenario, title) in PICTURES.items()}


def _picture(page: str, title: str) -> str:
    """One section of a report as a picture of its own, legend included."""
    section = page[page.index(f"<h2>{title}</h2>") :]
    svg = section[section.index("<svg") : section.index("</svg>")]
    legend = section[
        section.index('<div class="legend">') : section.index("</div>", section.index('<div class="legend">'))
    ]
    body = svg.partition(">")[2]
    parts, x = [], 64
    for colour, name in _KEY.findall(legend):
        parts.append(f'<rect x="{x}" y="268" width="11" height="11" rx="2" fill="{colour}"/>')
        parts.append(f'<text class="key" x="{x + 16}" y="278">{name}</text>')
        x += 34 + 7 * len(name)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 290" width="860" height="290">{_STYLE}'
        f"{body}{''.join(parts)}</svg>\n"
    )


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in pictures().items():
        (folder / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
