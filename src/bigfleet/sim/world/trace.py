"""The event log of a run: one JSON object per line, small enough to read and to keep as a golden.

A line appears when something happened: a decision with actions, a step of the script, a changed picture. Machine ids
are folded into ranges, so that binding 64 machines is one line. Field order is fixed; nothing depends on wall time.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from bigfleet.duration import spelled
from bigfleet.sim.document.text import instant
from bigfleet.sim.scenario.scenario import Detail
from bigfleet.virtual.kernel import HOUR

_NUMBERED = re.compile(r"(.*?)(\d+)$")


class Trace:
    """Collects lines in order."""

    def __init__(self, detail: Detail) -> None:
        self.lines: list[str] = []
        self._detail = detail
        self._picture: dict[str, Any] = {}
        self._hour = 0
        self._counted: Counter[tuple[str, str]] = Counter()

    def note(self, at: int, event: str, facts: dict[str, object]) -> None:
        """Something from the script happened."""
        self._write({"t": instant(at), "event": event, **{name: _plain(name, fact) for name, fact in facts.items()}})

    def decided(
        self, at: int, shard: str, cycle: int, actions: Iterable[tuple[str, str, str]], picture: dict[str, Any]
    ) -> None:
        """A cycle: actions as (kind, cluster, machine), and what the world looks like."""
        if self._detail is Detail.HOURLY:
            self._counted.update((kind, cluster) for kind, cluster, _ in actions)
            if at // HOUR > self._hour:
                self._hour = at // HOUR
                self._hourly(at, picture)
            return
        rows = self._rows(actions)
        if not rows and picture == self._picture:
            return
        self._picture = picture
        line: dict[str, Any] = {"t": instant(at), "event": "cycle", "shard": shard, "cycle": cycle}
        if rows:
            line["actions"] = rows
        self._write({**line, **picture})

    def finish(self, at: int, facts: dict[str, Any]) -> None:
        if self._detail is Detail.HOURLY and self._counted:
            self._hourly(at, {})
        self._write({"t": instant(at), "event": "end", **facts})

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)

    def _hourly(self, at: int, picture: dict[str, Any]) -> None:
        actions: Counter[str] = Counter()
        for (kind, _), count in self._counted.items():
            actions[kind] += count
        self._counted.clear()
        self._write({"t": instant(at), "event": "hour", "actions": dict(sorted(actions.items())), **picture})

    def _rows(self, actions: Iterable[tuple[str, str, str]]) -> list[dict[str, Any]]:
        grouped: dict[tuple[str, str], list[str]] = {}
        for kind, cluster, machine in actions:
            grouped.setdefault((kind, cluster), []).append(machine)
        rows = []
        for (kind, cluster), machines in sorted(grouped.items()):
            row: dict[str, Any] = {"kind": kind}
            if cluster:
                row["cluster"] = cluster
            row["count"] = len(machines)
            if self._detail is Detail.MACHINES:
                row["machines"] = fold(machines)
            rows.append(row)
        return rows

    def _write(self, line: dict[str, Any]) -> None:
        self.lines.append(json.dumps(line, separators=(",", ":")))


def fold(ids: Iterable[str]) -> str:
    """Ids in order, runs of consecutive numbers as one: `gpu-a-[0000-0063] gpu-b-0002`."""
    runs: list[tuple[str, str, str]] = []
    for each in sorted(ids):
        found = _NUMBERED.fullmatch(each)
        if found is None:
            runs.append((each, "", ""))
            continue
        head, number = found[1], found[2]
        if runs:
            before, first, last = runs[-1]
            if before == head and last and len(last) == len(number) and int(number) == int(last) + 1:
                runs[-1] = (head, first, number)
                continue
        runs.append((head, number, number))
    return " ".join(head + (f"[{first}-{last}]" if first != last else first) for head, first, last in runs)


def _plain(name: str, fact: object) -> object:
    if name in ("for", "down", "pause", "repaired_after") and isinstance(fact, int):
        return spelled(fact)
    return list(fact) if isinstance(fact, tuple) else fact
