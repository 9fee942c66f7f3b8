"""The judge from a family to a verdict and a page, on a family small enough for a test."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench.quality import cli
from bench.quality.demand import Trace, TraceBuilder
from bench.quality.families import Family, Limits
from bench.quality.judge import Plan, checks, judge
from bench.quality.page import PAGE, rewritten
from bench.quality.plot import evictions

HOUR = 3600.0


def small(seed: int) -> Trace:
    random = np.random.default_rng(seed)
    trace = TraceBuilder("small", seed, 2 * HOUR)
    for _ in range(60):
        size = ((500, 1024, 0), (1000, 4096, 0), (2000, 4096, 0))[int(random.integers(3))]
        trace.add(float(random.uniform(0, HOUR)), float(random.uniform(600, HOUR)), size, service=True)
    return trace.build()


FAMILY = Family("small", "a few pods", small, Limits(1.5, 3.0, 3.0, 1.1))


def test_a_family_is_judged_against_its_bound_its_rivals_and_every_limit() -> None:
    row = judge(FAMILY, Plan(seeds=(1, 2), rival_seeds=(1,), curve=False))
    summary = row["summary"]
    assert summary["emptiest"]["ratio"]["least"] > 1 and summary["fullest"]["ratio"]["least"] > 1
    assert summary["static"]["least"] >= 1
    assert set(summary["rivals"]) == {"sums", "autoscaler"}
    # What no policy may do at all is among the checks, and this one does not.
    for name in ("emptiest: without room at rest", "fullest: pinned evicted"):
        assert row["checks"][name] == {"measured": 0, "limit": 0, "held": True}
    assert row["missed"] == sorted(name for name, check in row["checks"].items() if not check["held"])


def test_the_same_family_is_judged_alike_twice() -> None:
    plan = Plan(seeds=(3,), rival_seeds=(), curve=False)
    assert judge(FAMILY, plan) == judge(FAMILY, plan)


def test_a_budget_buys_evictions_and_none_buys_none() -> None:
    curve = judge(FAMILY, Plan(seeds=(1,), rival_seeds=(), curve=True))["seeds"][0]["curve"]
    assert curve["0.00"]["evicted"] == 0 and curve["0.00"]["reclamation"] == 0
    assert all(curve[share]["evicted"] <= float(share) for share in curve)


def test_a_missed_limit_is_told() -> None:
    spread = {"mean": 1.3, "least": 1.2, "most": 1.4}
    nothing = {"mean": 0.0, "least": 0.0, "most": 0.0}
    scoring = dict.fromkeys(
        ("evicted", "late", "unexplained", "service_wait_p99", "bought_back", "at_rest", "pinned_evicted"), nothing
    ) | {"ratio": spread}
    summary = {"static": {"mean": 1.0}, "emptiest": scoring, "fullest": scoring}
    found = checks(Family("f", "f", small, Limits(1.02, 1.25, 1.35, 1.1)), summary)
    assert [name for name, check in found.items() if not check["held"]] == ["emptiest: dollars over bound"]


def test_the_page_keeps_its_words_and_gets_its_tables_from_the_report() -> None:
    report = {"families": {"small": judge(FAMILY, Plan(seeds=(1,), rival_seeds=(), curve=False))}}
    text = PAGE.read_text(encoding="utf-8")
    once = rewritten(text, report)
    assert "| a few pods |" in once
    assert once.split("<!-- figures")[0] == text.split("<!-- figures")[0]
    assert rewritten(once, report) == once
    with pytest.raises(ValueError, match="lacks the marks"):
        rewritten(Path(__file__).read_text(encoding="utf-8").replace("<!--", ""), report)


def test_a_part_of_a_run_keeps_the_other_families_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Family("other", "others", small, Limits(1.5, 3.0, 3.0, 1.1))
    monkeypatch.setattr(cli, "FAMILIES", {"small": FAMILY, "other": other})
    path = tmp_path / "quality.json"
    shortest = ["--seeds", "1", "--rival-seeds", "--without-curve", "--json", str(path)]
    code = cli.main(["--family", "small", *shortest])
    assert code == int(bool(json.loads(path.read_text())["families"]["small"]["missed"]))
    cli.main(["--family", "other", *shortest])
    report = json.loads(path.read_text())
    assert list(report["families"]) == ["small", "other"]
    assert report["verdict"] == ("FAILED" if report["missed"] else "PASSED")
    assert json.loads(capsys.readouterr().out.split("\n}\n")[0] + "\n}")["families"]
    with pytest.raises(SystemExit):
        cli.main(["--family", "nobody"])


def test_the_picture_draws_every_replay_and_fewer_dollars_lower() -> None:
    picture = evictions({"web": [(0.0, 1.4), (0.05, 1.2)]})
    heights = [float(part.split('"')[0]) for part in picture.split('cy="')[1:]]
    assert len(heights) == 2 and heights[0] < heights[1]
