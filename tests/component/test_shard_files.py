"""What a shard keeps on disk: its journal, its audit log, its recordings."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from bigfleet.engine.batches import Breaker, Conditions, DemandBatch, Ids, MachineBatch, Rollup, Shape, Stamp
from bigfleet.engine.placement import Backoff, Move, Rest, RestKind
from bigfleet.engine.policy import IdleHold, Policy
from bigfleet.engine.results import NeedKey
from bigfleet.model.profile import Profile
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import Resources
from bigfleet.model.spread import Spread, WhenUnsatisfiable
from bigfleet.model.taint import Taint, Toleration
from bigfleet.provider.kit import SqliteStore
from bigfleet.provider.kit.core.events import SaveFence
from bigfleet.shard.contract.events import Audit, RunStep, Table
from bigfleet.shard.contract.outcomes import Outcome
from bigfleet.shard.recording.format import Recorder, RecordingError, read_recording, recording_header
from bigfleet.shard.runtime.audit import AuditError, AuditLog
from bigfleet.shard.runtime.journal import JournalError, JournalFile
from tests.strategies.placed import counted, node, pods, reports
from tools.small_disk import small_disk

INSTANT = 1_700_000_000_123_456_789


def reopened(journal: JournalFile, data_dir: Path) -> JournalFile:
    journal.close()
    return JournalFile(data_dir, "shard-0")


def test_the_epoch_grows_with_every_start_and_never_falls_behind_the_clock(tmp_path: Path) -> None:
    where = tmp_path / "deep" / "data"
    before = time.time_ns() // 1_000_000
    journal = JournalFile(where, "shard-0")
    assert before <= journal.epoch <= time.time_ns() // 1_000_000
    again = reopened(journal, where)
    assert again.epoch > journal.epoch
    again.close()
    # A clock that ran ahead once, and one that was set back.
    ahead = JournalFile(where, "shard-0", unix_ms=10**14)
    assert ahead.epoch == 10**14
    assert reopened(ahead, where).epoch == 10**14 + 1


def test_a_lost_data_directory_gives_an_epoch_that_providers_have_not_seen(tmp_path: Path) -> None:
    first = JournalFile(tmp_path / "data", "shard-0")
    for _ in range(5):
        first = reopened(first, tmp_path / "data")
    first.close()
    shutil.rmtree(tmp_path / "data")
    time.sleep(0.01)
    assert JournalFile(tmp_path / "data", "shard-0").epoch > first.epoch
    assert JournalFile(tmp_path / "other", "shard-0", min_epoch=10**15).epoch == 10**15


def test_rows_survive_a_restart_and_erased_ones_do_not(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path, "shard-0")
    journal.write([(Table.INTENT, "p/m-1", '{"kind":1}'), (Table.INTENT, "p/m-2", "{}"), (Table.RAILS, "", "x")])
    journal.write([(Table.INTENT, "p/m-2", None), (Table.RAILS, "", "y")])
    again = reopened(journal, tmp_path)
    assert again.state.rows == {(Table.INTENT, "p/m-1"): '{"kind":1}', (Table.RAILS, ""): "y"}


def test_a_killed_process_loses_nothing_it_wrote(tmp_path: Path) -> None:
    script = (
        "import os,sys,signal,pathlib\n"
        "from bigfleet.shard.runtime.journal import JournalFile\n"
        "from bigfleet.shard.contract.events import Table\n"
        "journal = JournalFile(pathlib.Path(sys.argv[1]), 'shard-0')\n"
        "for n in range(50): journal.write([(Table.DRAIN, f'm-{n}', str(n))])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    journal = JournalFile(tmp_path, "shard-0")
    assert len(journal.state.rows) == 50


def test_the_epoch_of_a_reference_shard_is_continued(tmp_path: Path) -> None:
    (tmp_path / "epoch").write_text(" 41\n")
    journal = JournalFile(tmp_path, "shard-0", unix_ms=0)
    assert journal.epoch == 42


@pytest.mark.parametrize("text", ["", "soon", "-1", "1.5"])
def test_a_corrupt_epoch_file_is_a_start_up_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "epoch").write_text(text)
    with pytest.raises(JournalError, match="epoch"):
        JournalFile(tmp_path, "shard-0")


def test_a_corrupt_journal_is_a_start_up_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "shard.db").write_bytes(b"not a database at all, really" * 100)
    with pytest.raises(JournalError, match=r"shard\.db"):
        JournalFile(tmp_path, "shard-0")


def test_two_processes_cannot_share_a_data_directory(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path, "shard-0")
    script = (
        "import sys,pathlib\nfrom bigfleet.shard.runtime.journal import JournalFile\n"
        "JournalFile(pathlib.Path(sys.argv[1]), 'shard-0')\n"
    )
    second = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False)
    assert second.returncode != 0 and "is in use by the process" in second.stderr
    journal.close()


def test_a_journal_of_another_shard_is_refused(tmp_path: Path) -> None:
    JournalFile(tmp_path, "shard-0").close()
    with pytest.raises(JournalError, match="'shard-0', not 'shard-1'"):
        JournalFile(tmp_path, "shard-1")


def action(machine: str, outcome: str = "success") -> Audit:
    return Audit(3, "Bootstrap", machine, "c-1", "phase1.idle", 0, outcome, "cheapest of 4")


def test_an_audit_record_is_one_json_line_with_the_documented_fields(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    log.write([(INSTANT, action("m-1"))])
    line = json.loads((tmp_path / "audit.jsonl").read_text())
    assert line == {
        "time": "2023-11-14T22:13:20.123456Z",
        "level": "INFO",
        "msg": "action",
        "cycle": 3,
        "kind": "Bootstrap",
        "machine": "m-1",
        "cluster": "c-1",
        "reason": "phase1.idle",
        "grace_seconds": 0,
        "outcome": "success",
        "detail": "cheapest of 4",
    }


def test_the_audit_log_rotates_by_size_and_keeps_so_many(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path, max_bytes=1000, keep=2)
    log.write([(INSTANT, action(f"m-{number:03}")) for number in range(30)])
    log.close()
    files = sorted(entry.name for entry in tmp_path.iterdir())
    assert files == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    kept = [
        json.loads(line)["machine"] for name in reversed(files) for line in (tmp_path / name).read_text().splitlines()
    ]
    assert kept == [f"m-{number:03}" for number in range(30)][-len(kept) :]
    assert all((tmp_path / name).stat().st_size <= 1000 for name in files)
    AuditLog(path, max_bytes=1000, keep=2).write([(INSTANT, action("appended"))])
    assert json.loads(path.read_text().splitlines()[-1])["machine"] == "appended"


def test_an_audit_log_that_cannot_be_opened_is_a_start_up_error(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="--audit-log"):
        AuditLog(tmp_path / "no" / "such" / "folder.jsonl")


def recorded_step(number: int) -> RunStep:
    shape = Shape(
        "p", "m5", "z", 3, 0.5, 0.1, Resources.of(cpu=4000), (("rack", "r1"),), (Taint("gpu", "", "NoSchedule"),)
    )
    machines = MachineBatch(
        ids=Ids.of(["m-1", "m-2"]),
        state=np.array([3, 0], np.uint8),
        shape=np.array([0, 0], np.int32),
        cluster=np.array([-1, -1], np.int32),
        stamp=np.array([0, -1], np.int32),
        not_before=np.array([5, 0], np.int64),
        shapes=(shape,),
        clusters=("c-1",),
        stamps=(Stamp(7, 0.5, float("inf"), "fp", "g"),),
    )
    profile = Profile(
        [Requirement("zone", Operator.IN, ("a", "b"))],
        [Spread("rack", 1, WhenUnsatisfiable.DO_NOT_SCHEDULE)],
        100,
        5,
        1,
        [Toleration("gpu", "Exists")],
    )
    rollup = Rollup(
        "c-1",
        (profile,),
        ("gang\x00x",),
        ("cpu",),
        np.array([0, 0], np.int32),
        np.array([0, -1], np.int32),
        np.array([[8000], [100]], np.int64),
        np.array([[2000], [100]], np.int64),
        Resources.of(cpu=100),
    )
    policy = Policy.production().with_(idle_hold_by_provider={"p": IdleHold(1, 2)})
    conditions = Conditions(reclaim=False, breakers=(Breaker("p", "m5", "z", 3, 99),))
    return RunStep(
        number, INSTANT + number, machines, DemandBatch([rollup], (("c-1", True),), ("c-9",)), policy, conditions
    )


def test_a_recording_reads_back_what_the_engine_was_given(tmp_path: Path) -> None:
    path = tmp_path / "run.rec"
    recorder = Recorder(path, shard_id="shard-0", epoch=4, started=INSTANT)
    recorder.write(recorded_step(1))
    recorder.write(RunStep(2, INSTANT + 2, None, None, Policy(), Conditions()))
    recorder.close()
    assert recording_header(path) == {"shard": "shard-0", "epoch": 4, "started": INSTANT}
    first, second = read_recording(path)
    wanted = recorded_step(1)
    assert (first.step, first.now, first.policy, first.conditions) == (1, wanted.now, wanted.policy, wanted.conditions)
    assert first.machines is not None and wanted.machines is not None
    assert [first.machines.ids[n] for n in range(2)] == ["m-1", "m-2"]
    assert first.machines.shapes == wanted.machines.shapes and first.machines.stamps == wanted.machines.stamps
    for name in ("state", "shape", "cluster", "stamp", "not_before"):
        read, given = getattr(first.machines, name), getattr(wanted.machines, name)
        assert read.dtype == given.dtype and (read == given).all()
    assert first.demand is not None and wanted.demand is not None
    read_rollup, given_rollup = first.demand.rollups[0], wanted.demand.rollups[0]
    assert read_rollup.profiles == given_rollup.profiles and read_rollup.groups == given_rollup.groups
    assert (read_rollup.aggregate == given_rollup.aggregate).all() and read_rollup.overhead == given_rollup.overhead
    assert (first.demand.links, first.demand.forgotten) == (wanted.demand.links, wanted.demand.forgotten)
    assert (second.machines, second.demand, second.policy) == (None, None, Policy())


def test_a_recording_reads_back_units_and_node_reports(tmp_path: Path) -> None:
    path = tmp_path / "run.rec"
    row = pods("c", 4, running=1, cpu=2, domains={"rack-1": 3}, exclusive=("port",))
    counted_rollup = counted("c", row, version=2**40)
    told = reports("c", node("m-1", profiles=("fp",), groups=("g",), cpu=2, closing_since=7, version=9, pinned=True))
    batch = DemandBatch([counted_rollup], streams=("c",), confirmed=(("d", 8),), reports=[told])
    plain = recorded_step(1)
    assert plain.machines is not None
    machines = structs.replace(plain.machines, deadline=np.array([3, 0], np.int64))
    conditions = Conditions(
        backoffs=(Backoff("c", "p", "m5", "z", 3, 99, NeedKey("c", "fp", "", "cpu=1")),),
        rests=(Rest("m-1", RestKind.CLOSE, 9),),
        moves=(Move("c", ("m-1",), "m-2", 1, 2),),
        evictions=(("c", 3),),
    )
    recorder = Recorder(path, shard_id="shard-0", epoch=4, started=INSTANT)
    recorder.write(RunStep(1, INSTANT, machines, batch, Policy(), conditions))
    recorder.close()
    [read] = read_recording(path)
    again = tmp_path / "again.rec"
    second = Recorder(again, shard_id="shard-0", epoch=4, started=INSTANT)
    second.write(read)  # type: ignore[arg-type]
    second.close()
    assert again.read_bytes() == path.read_bytes(), "what was read is what was written"
    assert read.conditions == conditions
    assert read.demand is not None and read.demand.streams == ("c",) and read.demand.confirmed == (("d", 8),)
    back, given = read.demand.rollups[0].counted, counted_rollup.counted
    assert back is not None and given is not None
    assert (back.mirror_version, back.domain_units, back.exclusive) == (2**40, given.domain_units, given.exclusive)
    assert back.stranded.tolist() == [3] and back.stranded.dtype == np.int32
    [report] = read.demand.reports
    assert report.ids[0] == "m-1" and report.loads == tuple(told.loads) and report.pinned.tolist() == [True]
    assert (report.used == told.used).all() and report.closing_since.tolist() == [7]
    assert read.machines is not None and read.machines.deadline is not None
    assert read.machines.deadline.tolist() == [3, 0]


def test_a_torn_recording_gives_its_whole_steps(tmp_path: Path) -> None:
    path = tmp_path / "run.rec"
    recorder = Recorder(path, shard_id="shard-0", epoch=1, started=0)
    for number in (1, 2, 3):
        recorder.write(recorded_step(number))
    recorder.close()
    path.write_bytes(path.read_bytes()[:-10])
    assert [step.step for step in read_recording(path)] == [1, 2]


def test_a_recording_never_overwrites_and_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.rec"
    path.write_text("precious")
    with pytest.raises(RecordingError, match="exists"):
        Recorder(path, shard_id="shard-0", epoch=1, started=0)
    with pytest.raises(RecordingError, match="not a recording"):
        list(read_recording(path))


def test_every_error_of_the_journal_is_one_sentence_with_the_path_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "shard.db").write_bytes(b"this is no database at all" * 100)
    with pytest.raises(JournalError, match=r"shard\.db cannot be used: .*; .*move it away and start again"):
        JournalFile(tmp_path, "shard-0")
    damaged = tmp_path / "damaged"
    JournalFile(damaged, "shard-0").close()
    with sqlite3.connect(damaged / "shard.db") as db:
        db.execute("UPDATE meta SET value = 'soon' WHERE name = 'epoch'")
    with pytest.raises(JournalError, match="damaged; move it away"):
        JournalFile(damaged, "shard-0")


def test_a_full_disk_is_told_as_such_and_not_as_a_failed_rollback(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path, "shard-0")
    (pages,) = journal._db.execute("PRAGMA page_count").fetchone()
    journal._db.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(JournalError, match=r"shard\.db cannot be written: .*full; make room"):
        journal.write([(Table.INTENT, f"p/m-{n}", "x" * 4000) for n in range(100)])
    journal._db.execute("PRAGMA max_page_count = 100000")
    journal.write([(Table.INTENT, "p/m-1", "{}")])
    assert len(reopened(journal, tmp_path).state.rows) == 1, "nothing of the refused write is left"


def test_a_disk_that_is_full_at_the_start_is_told_as_such(tmp_path: Path) -> None:
    """On a real disk without a free byte: the first thing a shard writes is who holds the folder."""
    with small_disk(tmp_path / "disk", "1m") as disk:
        if disk is None:
            pytest.skip("this user may not make a disk of its own")
        (disk.outside / "data").mkdir()
        disk.fill()
        call = (
            f"from bigfleet.shard.runtime.journal import *; JournalFile(Path({str(disk.path / 'data')!r}), 'shard-0')"
        )
        ended = subprocess.run([*disk.prefix, sys.executable, "-c", call], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].endswith(
        f"JournalError: --data-dir {disk.path / 'data'} cannot be used: No space left on device; "
        "make room on its disk, then start again"
    )


def test_a_full_disk_under_a_provider_is_told_as_such(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "state.db")
    (pages,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(sqlite3.Error, match="full"):
        store.write([SaveFence("s", f"machine-{n}" * 100, 1, 1) for n in range(500)])
    store.close()


def test_a_full_disk_under_the_audit_log_is_told_as_such() -> None:
    log = AuditLog(Path("/dev/full"))
    with pytest.raises(
        AuditError, match=r"--audit-log /dev/full cannot be written: No space left on device; make room"
    ):
        log.write([(1, Audit(1, "Delete", "m-1", "", "phase3.release", 0, Outcome.SUCCESS))])
    log.close()
