"""`make kube-demo` as a newcomer uses it: the commands it prints do what it says they do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.processes import INTERRUPTIBLE, Program
from tools.waiting import wait_until


@pytest.mark.skipif(os.environ.get("BIGFLEET_E2E") != "1", reason="takes a minute: make e2e")
def test_the_commands_that_the_demo_prints_bring_nodes_and_give_them_back(
    control_plane_programs: None, tmp_path: Path
) -> None:
    demo = Program("demo", [*INTERRUPTIBLE, sys.executable, "-m", "tools.kube.demo"], tmp_path)
    demo.start()
    try:
        guide = wait_until(
            lambda: demo.log.read_text() if "Ctrl-C ends everything" in demo.log.read_text() else "",
            seconds=240,
            what="the demo says what to type",
            evidence=demo.tail,
        )
        typed = [line.strip() for line in guide.splitlines() if re.match(r"    (export|kubectl) ", line)]
        export, commands = typed[0], typed[1:]
        assert [command.split()[1] for command in commands] == ["apply", "get", "get", "scale"]

        def shell(command: str) -> str:
            done = subprocess.run(
                ["sh", "-c", f"{export}\n{command}"],
                capture_output=True,
                text=True,
                check=True,
                env={**os.environ, "HOME": str(tmp_path)},
            )
            return done.stdout

        apply, see, ours, scale = commands
        assert "web created" in shell(apply)
        wait_until(lambda: shell(see).count("Running") == 20, seconds=120, what="pods run", evidence=demo.tail)
        assert "un-" in shell(ours) and "Acknowledged" in shell(ours)
        assert "scaled" in shell(scale)
        wait_until(lambda: "node/" not in shell(see), seconds=180, what="no node is left", evidence=demo.tail)
    finally:
        os.kill(demo.pid, 2)
        assert demo.wait(60) == 0
    assert "nothing of it is left" in demo.tail()
    folder = re.search(r"KUBECONFIG=(\S+)/kube/", guide)
    assert folder is not None and not Path(folder.group(1)).exists()
