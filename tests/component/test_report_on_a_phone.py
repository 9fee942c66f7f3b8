"""A report on a phone: whatever is wider than the screen scrolls in a box of its own, and the box shows it."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bigfleet.sim import library
from bigfleet.sim.report.comparison import Side, render_comparison
from bigfleet.sim.report.report import render, style

PHONE = (390, 844)
MEASURE = """<!doctype html><body style="margin:0"><iframe id=page src="PAGE" style="border:0;width:390px;height:844px">
</iframe><pre id=told></pre><script>
window.onload = () => {
  const seen = document.getElementById('page').contentDocument, root = seen.documentElement;
  const boxes = [...seen.querySelectorAll('.wide')];
  const hidden = boxes.filter(box => box.scrollWidth > box.clientWidth);
  const silent = boxes.filter(box => box.classList.contains('needs-room')
    && getComputedStyle(box, '::before').content === 'none');
  document.getElementById('told').textContent =
    `page ${root.scrollWidth} of ${root.clientWidth}, ${hidden.length} scroll, ${silent.length} silent`;
}</script>"""


class Nesting(HTMLParser):
    """Which plots and tables stand outside a box that scrolls."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.viewport = ""
        self.boxed: list[str] = []
        self.loose: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = dict(attrs)
        if tag == "meta":
            self.viewport = (facts.get("content") or "") if facts.get("name") == "viewport" else self.viewport
            return
        if tag == "table" or (tag == "svg" and facts.get("class") == "plot"):
            inside = any("wide" in each.split() for each in self.open)
            (self.boxed if inside else self.loose).append(tag)
        self.open.append(facts.get("class") or "" if tag == "div" else "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        self.open.pop()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    played = library.play(library.find("withdrawal"))
    side = Side("withdrawal", played.summary, played.run.meter.samples)
    folder = tmp_path_factory.mktemp("pages")
    made = {"report": render(played.run, played.summary), "comparison": render_comparison(side, side)}
    for name, text in made.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in made}


@pytest.mark.parametrize("name", ["report", "comparison"])
def test_every_plot_and_table_is_in_a_box_that_scrolls(pages: dict[str, Path], name: str) -> None:
    nesting = Nesting()
    nesting.feed(pages[name].read_text(encoding="utf-8"))
    assert nesting.viewport == "width=device-width, initial-scale=1"
    assert nesting.loose == []
    assert {"svg", "table"} <= set(nesting.boxed)


def test_a_small_screen_is_told_that_there_is_more() -> None:
    css = style("report.css")
    box = re.search(r"\n\.wide \{([^}]*)\}", css)
    assert box is not None and "overflow-x: auto" in box[1] and "local" in box[1] and "var(--shade)" in box[1]
    small = css[css.index("@media (max-width: 671px)") :]
    assert re.search(r'\.needs-room::before \{ content: "[^"]+→"; position: sticky', small)
    assert ".wide::-webkit-scrollbar-thumb" in css


@pytest.mark.parametrize("name", ["report", "comparison"])
def test_a_browser_of_a_phones_width_agrees(pages: dict[str, Path], name: str) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("needs chromium")
    wrapper = pages[name].with_name(f"{name}-on-a-phone.html")
    wrapper.write_text(MEASURE.replace("PAGE", pages[name].name), encoding="utf-8")
    flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--dump-dom")
    shown = subprocess.run(
        [browser, *flags, wrapper.as_uri()], capture_output=True, text=True, check=True, timeout=120
    ).stdout
    told = re.search(r"page (\d+) of (\d+), (\d+) scroll, (\d+) silent", shown)
    assert told is not None, shown[:500]
    whole, screen, scrolling, silent = map(int, told.groups())
    assert whole <= screen <= PHONE[0], "the page itself must not scroll sideways"
    assert scrolling > 0 and silent == 0
