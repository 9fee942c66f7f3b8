"""What commands print: one record, three forms; exact for programs, plain for people."""

import io
import json
import sys

import pytest
import yaml

from bigfleet.cli.ctl.shard_calls import as_json
from bigfleet.cli.output import Output, print_data, print_record, print_records
from bigfleet.wire import provider_pb2, shardread_pb2

RECORD = {"name": "é", "paused": False, "set_by": "", "sizes": {"cpu": 2}, "zones": ["a", "b"], "none": None}


@pytest.mark.parametrize(("output", "read"), [(Output.JSON, json.loads), (Output.YAML, yaml.safe_load)])
def test_programs_read_back_exactly_what_was_there(
    output: Output,
    read,  # type: ignore[no-untyped-def]
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_record(RECORD, output)
    assert read(capsys.readouterr().out) == RECORD
    print_records([RECORD, RECORD], output)
    assert read(capsys.readouterr().out) == [RECORD, RECORD]
    print_records([], output)
    assert read(capsys.readouterr().out) == []


@pytest.mark.parametrize(("output", "read"), [(Output.JSON, json.loads), (Output.YAML, yaml.safe_load)])
@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_programs_read_it_back_whatever_the_encoding_can_say(
    output: Output,
    read,  # type: ignore[no-untyped-def]
    encoding: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(said, encoding=encoding, errors="backslashreplace"))
    record = {"name": "é → \N{ROCKET}"}
    print_record(record, output)
    sys.stdout.flush()
    assert read(said.getvalue().decode(encoding)) == record


def test_yaml_keeps_the_order_and_the_letters(capsys: pytest.CaptureFixture[str]) -> None:
    print_data(RECORD, Output.YAML)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["name: é", "paused: false"]


def test_people_read_yes_and_no_and_a_dash_for_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    print_record(RECORD, Output.TABLE)
    assert capsys.readouterr().out.splitlines() == [
        "name    é",
        "paused  no",
        "set by  -",
        "sizes   cpu 2",
        "zones   a, b",
        "none    -",
    ]


def test_a_table_is_aligned_and_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    print_records([{"A": "x" * 300, "B": 1}, {"A": "y", "B": True}], Output.TABLE)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"A{' ' * 299}  B", f"{'x' * 300}  1", f"y{' ' * 299}  yes"]


def test_an_empty_table_says_so_where_it_disturbs_no_program(capsys: pytest.CaptureFixture[str]) -> None:
    print_records([], Output.TABLE)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "nothing to show\n")


def test_programs_get_the_same_bytes_for_the_same_message() -> None:
    """A map of the wire has another order in every process: whoever compares two answers would see changes."""
    names = [f"example.org/{letter}" for letter in "qwertyuiopas"]
    machine = provider_pb2.Machine(id="m", labels=dict.fromkeys(names, "1"))
    machine.allocatable.resources.update(dict.fromkeys(names, "1"))
    found = as_json(shardread_pb2.ListMachinesResponse(machines=[shardread_pb2.MachineView(machine=machine)]))
    [view] = found["machines"]
    assert list(view["machine"]["labels"]) == sorted(names)
    assert list(view["machine"]["allocatable"]["resources"]) == sorted(names)
    assert next(iter(view["machine"])) == "id", "fields keep the order of the contract"
