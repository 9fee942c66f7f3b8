"""`bigfleet demo` as a person sees it: the real command on a real terminal, small and large, every key pressed."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyte
import pytest

from tests.strategies.demo_words import TOO_RISKY_FOR_THE_WEB

BIGFLEET = (sys.executable, "-c", "from bigfleet.cli.bigfleet import main; main()")
PATIENCE = 120.0  # a cold start on a busy machine; nothing here is about speed
SIZES = [(80, 24), (160, 50)]
PRICES = {"on-demand": (0.68, 0.384), "spot": (0.204, 0.1152)}
HOSTS = "■◐□◌○"  # what is billed: neither for sale, nor being bought, nor gone
MARKETS = ("on-prem", "reserved", "on-demand", "spot")


class Terminal:
    """The screen of a process, and its keyboard."""

    def __init__(self, child: int, end: int, width: int, height: int) -> None:
        self.child, self.end = child, end
        self.screen = pyte.Screen(width, height)
        self.history: list[str] = []
        self._glimpses: list[str] = []
        self._stream = pyte.ByteStream(self.screen)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        """All words in reading order, frames and line breaks gone."""
        return " ".join(" ".join(re.sub(r"[│╭╮╰╯─]", " ", line) for line in self.lines).split())

    def saw(self, words: str) -> bool:
        """Whether these were to be read at any time since the last key, be it while other lines were still drawn: a
        small screen shows few decisions, and the next ones push them out."""
        return any(re.search(words, text) for text in (*self.history, *self._glimpses))

    def press(self, key: str) -> None:
        self.history.clear()
        self._glimpses.clear()
        os.write(self.end, key.encode())

    def until(self, seen: Callable[[Terminal], bool], what: str) -> None:
        """Watch until it is seen; every screen on the way must be whole."""
        deadline = time.monotonic() + PATIENCE
        while True:
            quiet = not self._read(0.2)
            self._glimpses.append(self.text)
            if quiet and self.lines[-1]:
                self.judge()
                self.history.append(self.text)
                if seen(self):
                    return
            assert time.monotonic() < deadline, f"never saw {what}:\n" + "\n".join(self.lines)

    def until_told(self, words: str) -> None:
        """Every decision is on the screen for a moment, the last ones after demand is met."""
        self.until(lambda terminal: terminal.saw(words), words)

    def judge(self) -> None:
        """What must be true of every screen."""
        shown = "\n".join(self.lines)
        assert re.search(r"\bq +quit$", self.lines[-1]), f"the way out is not on the last line:\n{shown}"
        assert "…" not in shown, f"something is cut:\n{shown}"
        assert not re.search(r"\d{4,}m vCPU", shown), f"thousandths of a processor:\n{shown}"
        assert self.row("on-prem").endswith("already paid") and self.row("reserved").endswith("already paid"), shown
        for market in PRICES:
            row = self.row(market)
            assert dollars(row) == pytest.approx(bill(row, *PRICES[market]), abs=0.006), (
                f"{market} is not billed:\n{shown}"
            )
        paid = sum(dollars(self.row(market)) for market in PRICES)
        assert self.dollars == pytest.approx(paid, abs=0.011), f"the whole is not the sum of its parts:\n{shown}"

    @property
    def dollars(self) -> float:
        return dollars(self.lines[0])

    def row(self, begins: str) -> str:
        """The line of one cluster or one way to pay."""
        stripped = [line.strip("│ ") for line in self.lines]
        return next((line for line in stripped if line.startswith((f"{begins} ", f"■ {begins} "))), "")

    def rows(self) -> list[str]:
        """What tells one state of the fleet from another."""
        return [self.row(name) for name in ("payments", "web", "research", *MARKETS)]

    def drain(self) -> None:
        """Read until the process is gone."""
        while self._read(30):
            pass

    def _read(self, seconds: float) -> bool:
        if not select.select([self.end], [], [], seconds)[0]:
            return False
        try:
            heard = os.read(self.end, 65536)
        except OSError:
            return False  # the other end is closed
        self._stream.feed(heard)
        return bool(heard)


def bill(row: str, large: float, small: float) -> float:
    """What the hosts a person can see cost: of every zone's machines the first four are the large ones."""
    zones = re.findall(r"[■◐□◌○◔·✕]{16}", row)
    assert len(zones) == 3, f"three zones of 16 machines were due in {row!r}"
    return sum(sum(map(zone[:4].count, HOSTS)) * large + sum(map(zone[4:].count, HOSTS)) * small for zone in zones)


def dollars(line: str) -> float:
    found = re.search(r"\$([\d,]+\.\d\d)/h", line)
    assert found, f"no dollars in {line!r}"
    return float(found[1].replace(",", ""))


@contextmanager
def demo(directory: Path, width: int, height: int) -> Iterator[Terminal]:
    child, end = pty.fork()
    if child == 0:
        environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        os.execvpe(
            BIGFLEET[0], [*BIGFLEET, "demo"], {**environment, "TMPDIR": str(directory), "TERM": "xterm-256color"}
        )
    try:
        yield Terminal(child, end, width, height)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    finally:
        os.close(end)


def met(terminal: Terminal) -> bool:
    return "● all demand met" in terminal.lines[0]


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_every_key_shows_what_it_does_and_nothing_is_cut(tmp_path: Path, width: int, height: int) -> None:
    with demo(tmp_path, width, height) as terminal:
        terminal.until(met, "an ordinary day")
        at_first = terminal.rows()
        assert terminal.dollars == 0 and "150 pretend machines" in terminal.lines[0]
        assert "24 checkout" in terminal.row("payments") and "30/34" in terminal.row("on-prem")
        assert "idle and already paid" in terminal.text

        terminal.press("3")
        terminal.until(lambda t: met(t) and t.dollars > 0, "a burst that is met")
        assert "96 nightly, 4 training" in terminal.row("research")
        terminal.until_told(r"bought \d+ spot m6i.2xlarge in .* for research's nightly at \$\d+\.\d\d/h: ")
        terminal.until_told(
            r"spot is good enough: 7\.5% risk × \$0 an interruption = \$0\.00/h, on-demand is \$0\.27/h"
        )

        terminal.press("z")
        terminal.until(lambda t: met(t) and t.lines[0].endswith("eu-west-1a down"), "demand met without a zone")
        assert "✕" * 16 in terminal.row("on-demand"), "machines that are gone must be seen"

        terminal.press("c")
        terminal.until(lambda t: met(t) and "28 settlement" in t.row("payments"), "a critical job that is met")
        terminal.until_told(
            # How many at a time differs from run to run; how many in all is held by the test of the scene.
            r"took [1-7] on-prem metal-8 in \S+ from research's nightly \(batch\) for payments' settlement \(critical\)"
        )
        terminal.until_told(TOO_RISKY_FOR_THE_WEB)

        terminal.press("r")
        terminal.until(lambda t: "● starting again" in t.lines[0], "a reset under way")
        terminal.until(lambda t: met(t) and t.rows() == at_first, "the start again")
        assert "down" not in terminal.lines[0] and "✕✕" not in terminal.text

        for _ in range(6):
            terminal.press("3")
        terminal.until(lambda t: "nothing that fits is left for sale" in t.text, "a shortage and its reason")
        assert "research's nightly (batch) is short of" in terminal.text and " short" in terminal.row("research")

        terminal.press("d")
        terminal.until(lambda t: met(t) and "36 nightly" in t.row("research") and t.dollars == 0, "bursts that ended")
        released = [int(count) for text in terminal.history for count in re.findall(r"released (\d+) ", text)]
        assert released and max(released) <= 36, "more was released than was there: 36 are of the commonest kind"
        terminal.press("d")
        words = r"took back \d+ on-prem metal-8 in hall-[ab].*: payments no longer needs them"
        terminal.until(lambda t: all(" 0/" in t.row(market) for market in MARKETS) and t.saw(words), "no work")

        terminal.press("4")
        terminal.until(lambda t: met(t) and " 6 tills" in t.row("stores on edge"), "more than that shard has")
        terminal.until_told(r"the coordinator moved 1 \S+ \S+ in \S+ from shard main to shard edge: idle there")

        terminal.press("q")
        terminal.drain()
        assert os.waitstatus_to_exitcode(os.waitpid(terminal.child, 0)[1]) == 0
