"""Draw the pictures of docs/simulation.md from its own replay: `python tools/report_pictures.py docs/images`.

Plots are cut out of the report that `fauxctl replay docs/examples/jobs.csv --map docs/examples/jobs-map.yaml
--baseline` writes. Runs are deterministic, so the pictures are too; a test draws them again and compares.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from bigfleet.sim import library
from bigfleet.sim.replay.replay import replay_csv
from bigfleet.sim.report.report import render, style
from bigfleet.sim.scenario.scenario import Sharding

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"
PICTURES = {"simulation-demand.svg": "Demand and supply by class", "simulation-dollars.svg": "Dollars per hour"}
_SVG = re.compile(r'<svg class="plot" viewBox="0 0 (\d+) (\d+)".*?</svg>', re.S)
_POINTER = re.compile(r'<g class="at">.*?</g>', re.S)


def pictures() -> dict[str, str]:
    """File name to content."""
    scenario = replay_csv(EXAMPLES / "jobs.csv", EXAMPLES / "jobs-map.yaml").with_(baseline=Sharding.PER_CLUSTER)
    finished = library.play(scenario)
    page = render(finished.run, finished.summary, finished.baseline)
    return {file: _picture(page, title) for file, title in PICTURES.items()}


def _picture(page: str, title: str) -> str:
    """The plots of one section below each other, as a file of their own that nobody points at."""
    section = page[page.index(f"<h2>{title}</h2>") :]
    section = section[: section.index("</section>")]
    parts, wide, high = [], 0, 0
    for found in _SVG.finditer(section):
        plot = _POINTER.sub("", found[0]).replace(
            "<svg ", f'<svg y="{high}" width="{found[1]}" height="{found[2]}" ', 1
        )
        parts.append(plot)
        wide, high = int(found[1]), high + int(found[2]) - 12
    box = f'viewBox="-8 -8 {wide + 16} {high + 8}" width="{wide + 16}" height="{high + 8}"'
    paper = f'<rect class="paper" x="-8" y="-8" width="{wide + 16}" height="{high + 8}"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {box}><style>{style("plots.css")}</style>'
        f"{paper}{''.join(parts)}</svg>\n"
    )


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in pictures().items():
        (folder / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
