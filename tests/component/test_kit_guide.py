"""The author guide keeps its promise: its commands, run as they stand in an empty folder, end in CERTIFIED.

Only ports are replaced, because two test runs may share a machine.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "provider-author-guide.md"


def test_every_command_of_the_author_guide_works(tmp_path: Path) -> None:
    blocks = re.findall(r"^```bash\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    script = "set -euo pipefail\n" + "\n".join(blocks)
    for port in sorted(set(re.findall(r"127\.0\.0\.1:(\d+)", script))):
        script = script.replace(f"127.0.0.1:{port}", f"127.0.0.1:{_free_port()}")
    process = subprocess.Popen(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{_commands(tmp_path)}:{os.environ['PATH']}", "PIP_NO_INDEX": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=600)
    finally:
        _end_group(process.pid)
    assert process.returncode == 0, output[-4000:]
    assert output.count("VERDICT: CERTIFIED") == 3, output[-4000:]
    assert "CERTIFIED" in (tmp_path / "my-provider" / "report" / "badge.json").read_text()


def _commands(tmp_path: Path) -> Path:
    """The commands of this very installation, whether or not its scripts are on PATH."""
    folder = tmp_path / "commands"
    folder.mkdir()
    (folder / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (folder / "python").chmod(0o755)
    for name, module in (
        ("bigfleet-conformance", "bigfleet.cli.conformance"),
        ("bigfleetctl", "bigfleet.cli.bigfleetctl"),
    ):
        script = folder / name
        script.write_text(f"#!{sys.executable}\nimport sys\nfrom {module} import main\nsys.exit(main())\n")
        script.chmod(0o755)
    return folder


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _end_group(group: int) -> None:
    """Providers the script left behind when it failed half-way."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
