"""`fauxctl` as people type it: output, exit codes, files. The guide's commands: test_documented_commands.py."""

import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from bigfleet.cli import fauxctl, progress
from bigfleet.cli.commands import CommandError
from bigfleet.cli.faux import scenarios
from bigfleet.sim import library
from bigfleet.sim.document.document import DocumentError
from bigfleet.sim.document.schema import schema
from bigfleet.sim.scenario.scenario import Scenario, parse_scenario
from tests.strategies.pages import assert_self_contained
from tools.report_pictures import pictures

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "simulation.md").read_text(encoding="utf-8")


def call(*words: str, code: int = 0):  # type: ignore[no-untyped-def]
    result = CliRunner().invoke(fauxctl.app, list(words))
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result


def fails(*words: str):  # type: ignore[no-untyped-def]
    """A command that is refused: what `fauxctl` turns into one line and exit code 1."""
    result = CliRunner().invoke(fauxctl.app, list(words))
    assert isinstance(result.exception, CommandError | DocumentError), f"{result.output}\n{result.exception!r}"
    return result


def test_list_names_every_scenario_with_its_description() -> None:
    lines = call("list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == library.shipped()
    assert all(len(line) > 30 for line in lines)


def test_run_prints_a_summary_and_verdicts() -> None:
    result = call("run", "withdrawal")
    assert "PASS  states" in result.stderr
    assert "32 Idle" in result.stdout


def test_run_prints_json_for_programs() -> None:
    summary = json.loads(call("run", "capacity-stockout", "-o", "json").stdout)
    assert (summary["passed"], summary["failures"], summary["machines"]) == (True, [], {"Configured": 32})


def test_run_prints_the_event_log() -> None:
    assert call("run", "withdrawal", "--trace").stdout == library.golden_path("withdrawal").read_text()


def test_a_failed_expectation_is_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "training-job-topology.yaml").write_text(
        (ROOT / "src/bigfleet/sim/scenarios/training-job-topology.yaml").read_text()
    )
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("extends: training-job-topology\nname: wrong\nexpect: [{check: configured, count: 65}]\n")
    result = call("run", str(wrong), code=1)
    assert "FAIL  configured: 64 machines serve clusters, not 65" in result.stderr


def test_a_run_leaves_its_files(tmp_path: Path) -> None:
    call("run", "priority-inversion", "--out", str(tmp_path))
    found = {path.name for path in tmp_path.iterdir()}
    assert found == {"summary.json", "events.jsonl", "metrics.jsonl", "report.html", "scenario.yaml", "timing.json"}
    saved = parse_scenario((tmp_path / "scenario.yaml").read_text(), "saved")
    assert saved == library.find("priority-inversion")
    assert json.loads(call("compare", str(tmp_path), str(tmp_path), "-o", "json").stdout)[0]["change"] == "="


def test_two_runs_are_compared_in_one_page(tmp_path: Path) -> None:
    for name in ("host-loss-0s", "host-loss-60s"):
        call("run", name, "--out", str(tmp_path / name))
    page = tmp_path / "deep" / "both.html"
    one, other = str(tmp_path / "host-loss-0s" / "summary.json"), str(tmp_path / "host-loss-60s")
    table = call("compare", one, other, "--html", str(page)).stdout
    assert table.split()[:4] == ["what", "host-loss-0s", "host-loss-60s", "change"]
    text = page.read_text()
    assert_self_contained(text)
    assert text.count("What did it cost?") == 2
    assert text.count('class="line blue"') == text.count('class="line dashed orange"') >= 6


def test_a_comparison_page_takes_only_summaries_of_runs(tmp_path: Path) -> None:
    (tmp_path / "soak.json").write_text('{"passed": true}')
    result = CliRunner().invoke(
        fauxctl.app, ["compare", "withdrawal", str(tmp_path / "soak.json"), "--html", str(tmp_path / "x.html")]
    )
    assert result.exit_code != 0
    assert "a summary lacks 'failures'" in str(result.exception)


def test_check_reports_a_changed_trace_as_a_diff(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    golden = tmp_path / "withdrawal.jsonl"
    monkeypatch.setattr(library, "golden_path", lambda name: golden)
    assert "there is no golden trace" in call("check", "withdrawal", code=1).stderr
    call("bless", "withdrawal", str(golden))
    call("verify", "withdrawal")
    golden.write_text(golden.read_text().replace('"count":32', '"count":31'))
    result = call("check", "withdrawal", code=1)
    assert "the trace changed" in result.stderr
    assert '-{"t":"1s"' in result.stderr


@pytest.mark.parametrize(("kind", "file"), [("scenario", "scenario.schema.json"), ("map", "replay-map.schema.json")])
def test_the_published_schemas_are_fresh(kind: str, file: str) -> None:
    printed = json.loads(call("schema", kind).stdout)
    assert printed == json.loads((ROOT / "docs" / file).read_text(encoding="utf-8"))


def test_the_map_of_the_guide_fits_its_schema() -> None:
    validator = jsonschema.Draft202012Validator(scenarios.published_schema(scenarios.Schema.MAP))
    document = yaml.safe_load((ROOT / "docs" / "examples" / "jobs-map.yaml").read_text(encoding="utf-8"))
    assert [error.message for error in validator.iter_errors(document)] == []


def test_a_scenario_of_ones_own_keeps_its_golden_beside_it(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("extends: withdrawal\nname: mine\n")
    assert "there is no golden trace" in call("check", str(mine), code=1).stderr
    assert call("bless", str(mine)).stdout == f"{tmp_path / 'mine.golden.jsonl'}: 6 lines\n"
    call("check", str(mine))


def test_a_wrong_name_is_found_before_anything_is_played() -> None:
    result = fails("check", "withdrawal", "nope")
    assert "PASS" not in result.stderr
    assert "scenario 'nope' is neither" in str(result.exception)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            ("run", "withdrawal", "--out", "FILE"),
            "--out is 'FILE', which cannot be written: File exists; give another folder",
        ),
        (("run", "withdrawal", "--json", "FOLDER"), "--json is 'FOLDER', which cannot be written: it is a folder"),
        (("run", "withdrawal", "--record", "FILE"), "--record is 'FILE', which cannot be written: it exists"),
        (("soak", "--cycles", "10", "--json", "FILE/x"), "--json is 'FILE/x', which cannot be written"),
        (("bless", "all", "FILE"), "leave it out, or name one scenario"),
        (("bless", "withdrawal", "FILE/x"), "cannot be written"),
        (("replay", "FILE", "--map", "FILE", "--price", "x=-1"), "--price is 'x=-1'; give NAME=DOLLARS"),
        (("replay", "FILE", "--map", "FILE", "--policy", "reclaim_hold"), "give KEY=VALUE, such as reclaim_hold=5m"),
        (("replay", "FILE", "--map", "FILE", "--policy", "guard=5m"), "guard is '5m'; give true or false"),
        (("replay", "FILE", "--decisions"), "--decisions is for recordings"),
        (("replay", "FILE"), "is not a recording; give --map"),
        (("compare", "withdrawal", "FILE/none.json"), "cannot be read"),
    ],
)
def test_a_wrong_word_is_one_sentence_before_anything_is_played(
    words: tuple[str, ...], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("FILE").write_text("nothing of use\n")
    Path("FOLDER").mkdir()
    monkeypatch.setattr(library, "play", None)
    result = fails(*words)
    assert complaint in str(result.exception)
    assert "\n" not in str(result.exception)


def test_a_log_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter([0.0, 4.0, 12.0, 13.0, 23.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with progress.simulation_progress("long") as report:
        for share in (0.1, 0.25, 0.3, 0.75):
            report(share)
    assert capsys.readouterr().err == "long: 25% after 12 s\nlong: 75% after 23 s\n"


def test_stopping_by_hand_tells_how_far_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), progress.simulation_progress("long") as report:
        report(0.4)
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "long: stopped by hand at 40%\n"


def test_demand_that_stays_unmet_is_told_with_its_reason() -> None:
    result = call("run", "capacity-stockout")
    assert "cluster-train lacks  256 GPU at priority 1000000. Matching machines exist, but demand" in result.stdout
    assert "32 pods still wait" in result.stdout


def test_a_verdict_and_the_words_beside_it_do_not_contradict_the_summary() -> None:
    result = call("run", "priority-inversion")
    assert re.search(r"^shortfalls +1$", result.stdout, re.M)
    assert "PASS  no-shortfall priority_at_least: 1000000\n" in result.stderr
    assert "PASS  shortfalls count: 1\n" in result.stderr
    assert "priority 100,000 waits" in result.stdout and "service" not in result.stdout


def test_the_pictures_of_the_guide_are_fresh() -> None:
    for name, content in pictures().items():
        assert (ROOT / "docs" / "images" / name).read_text(encoding="utf-8") == content
        assert f"images/{name}" in GUIDE


def test_a_small_soak_passes() -> None:
    report = json.loads(call("soak", "--cycles", "300", "--machines", "90", "--clusters", "4", "-o", "json").stdout)
    assert (report["passed"], report["leaked"], report["machines"]) == (True, [], 90)
    assert report["actions_total"] > 100


def test_a_small_soak_in_full_protocol_passes() -> None:
    words = ("--cycles", "120", "--machines", "60", "--clusters", "4", "--full-protocol", "-o", "json")
    report = json.loads(call("soak", *words).stdout)
    assert (report["protocol"], report["passed"], report["leaked"], report["machines"]) == ("full", True, [], 60)
    assert report["actions_total"] > 50


def test_a_run_that_takes_too_long_is_exit_code_1(tmp_path: Path) -> None:
    taken = tmp_path / "taken.json"
    result = call("run", "withdrawal", "--within", "0", "--json", str(taken), code=1)
    assert "0 s are allowed" in result.stderr
    record = json.loads(taken.read_text())
    assert (record["passed"], record["in_time"], record["within"]) == (True, False, 0)
    assert record["cpu_seconds"] >= 0


def test_an_unknown_scenario_is_one_sentence_and_exit_code_3() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "bigfleet.cli.fauxctl", "run", "nope"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 3
    assert result.stderr.startswith("error: scenario 'nope' is neither a shipped one nor a file")


def test_a_missing_extra_is_answered_with_how_to_install_it() -> None:
    code = "import sys; sys.modules['numpy'] = None; from bigfleet.cli.fauxctl import main; main()"
    result = subprocess.run([sys.executable, "-c", code, "list"], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (1, "error: `fauxctl list` needs numpy: pip install 'bigfleet[sim]'\n")
    helped = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=False)
    assert (helped.returncode, helped.stderr) == (0, "")
    assert "Replay a demand history" in helped.stdout


def test_the_guide_shows_every_command() -> None:
    shown = set(re.findall(r"^\$ fauxctl (\S+)", GUIDE, re.M))
    assert shown >= {"run", "list", "check", "replay", "soak", "compare"}


def test_the_guide_names_every_kind_of_step_workload_and_expectation() -> None:
    kinds = [
        definition["properties"][tag]["const"]
        for definition in schema(Scenario, "")["$defs"].values()
        for tag in ("do", "kind", "check")
        if "const" in definition["properties"].get(tag, {})
    ]
    assert len(kinds) > 30
    assert [kind for kind in kinds if f"`{kind}`" not in GUIDE] == []
