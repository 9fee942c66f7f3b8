"""The committed modules under bigfleet.wire are exactly what proto/ compiles to."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

import pytest

from tools import generate


@pytest.fixture(scope="module")
def compiled() -> dict[str, str]:
    return generate.wire_modules(generate.PROTO_ROOT)


def test_committed_modules_are_fresh(compiled: dict[str, str]) -> None:
    assert generate.differences(compiled, generate.WIRE) == []


def test_every_service_has_typed_stubs(compiled: dict[str, str]) -> None:
    messages = {"capacity", "provider", "shard", "coordinator", "shardread"}
    wanted = {f"{name}_pb2{end}" for name in messages for end in (".py", ".pyi")}
    wanted |= {f"{name}_pb2_grpc{end}" for name in messages - {"capacity"} for end in (".py", ".pyi")}
    assert set(compiled) == wanted


def test_a_changed_proto_makes_the_modules_stale(tmp_path: Path) -> None:
    shutil.copytree(generate.PROTO_ROOT, tmp_path / "proto")
    source = tmp_path / "proto" / generate.PROTO_PACKAGE / "shard.proto"
    source.write_text(source.read_text().replace("string cluster_id = 1;", "string cluster_name = 1;", 1))
    stale = generate.differences(generate.wire_modules(tmp_path / "proto"), generate.WIRE)
    assert {Path(line.partition(":")[0]).name for line in stale} == {"shard_pb2.py", "shard_pb2.pyi"}


def test_missing_edited_and_orphaned_modules_are_named(compiled: dict[str, str], tmp_path: Path) -> None:
    generate.write(compiled, tmp_path)
    assert generate.differences(compiled, tmp_path) == []
    (tmp_path / "capacity_pb2.py").unlink()
    (tmp_path / "shard_pb2.pyi").write_text("edited = 1\n")
    (tmp_path / "watch_pb2.py").write_text("")
    assert generate.differences(compiled, tmp_path) == [
        f"{tmp_path}/watch_pb2.py: no .proto produces this file any more",
        f"{tmp_path}/capacity_pb2.py: missing",
        f"{tmp_path}/shard_pb2.pyi: differs from what its .proto gives",
    ]
    generate.write(compiled, tmp_path)
    assert generate.differences(compiled, tmp_path) == []


def test_check_reports_stale_files_and_writes_nothing(
    compiled: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    generate.write(compiled, tmp_path)
    (tmp_path / "shard_pb2.py").write_text("")
    monkeypatch.setattr(generate, "WIRE", tmp_path)
    monkeypatch.setattr(generate, "wire_modules", lambda _: compiled)
    assert generate.main(["--check"]) == 1
    assert "make generate" in capsys.readouterr().err
    assert (tmp_path / "shard_pb2.py").read_text() == ""


def test_install_requirements_admit_no_runtime_older_than_the_generated_code(compiled: dict[str, str]) -> None:
    """Generated modules refuse older runtimes at import, so the lower bounds must not promise them."""
    found = re.search(r"# Protobuf Python Version: (\S+)", compiled["shard_pb2.py"])
    assert found is not None
    stub = re.search(r"GRPC_GENERATED_VERSION = '(\S+)'", compiled["shard_pb2_grpc.py"])
    assert stub is not None
    project = tomllib.loads((generate.ROOT / "pyproject.toml").read_text())["project"]
    bounds = dict(line.split(">=") for line in project["dependencies"] if ">=" in line)
    assert _version(bounds["protobuf"]) >= _version(found[1])
    assert _version(bounds["grpcio"]) >= _version(stub[1])


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
