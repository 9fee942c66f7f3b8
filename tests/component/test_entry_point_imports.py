"""What a part imports is what its users must install: the base needs no NumPy, Kubernetes client or etcd.

And what `--help` imports is what everybody waits for: no transport, no wire, no kernels, no boxes.
"""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from bigfleet.cli import bigfleet, bigfleetctl, conformance, fauxctl

ROOT = Path(__file__).parents[2]
HEAVY = ("numpy", "numba", "scipy", "textual", "lightkube", "httpx", "jinja2", "aetcd", "jsonschema")
# Neither a list of commands nor a version needs any of these.
SLOW = (*HEAVY, "grpc", "google.protobuf", "cryptography", "structlog", "yaml", "asyncio", "rich.markdown")
BASE = (
    "bigfleet.model.profile",
    "bigfleet.wire.provider_pb2",
    "bigfleet.transport",
    "bigfleet.crd",
    "bigfleet.provider.kit",
    "bigfleet.provider.client",
    "bigfleet.provider.fake",
    "bigfleet.virtual.kernel",
    "bigfleet.operator.core.session",
    "bigfleet.operator.core.mirror.mirror",
    "bigfleet.operator.session_codec",
    "bigfleet.operator.report_codec",
    "bigfleet.cli.bigfleet",
    "bigfleet.cli.bigfleetctl",
    "bigfleet.cli.fauxctl",
    "bigfleet.cli.conformance",
    "bigfleet.coordinator.server.process",
)
# Subcommands of the base install, loaded as when they are typed.
BASE_COMMANDS = sorted(
    {
        row.module.partition(":")[0]
        for entry in (bigfleet, bigfleetctl, conformance, fauxctl)
        for row in entry.SUBCOMMANDS
        if not row.extra
    }
)
EXTRAS = {
    "bigfleet.engine": {"numpy", "numba"},
    "bigfleet.coordinator.stores.etcd": {"aetcd"},
    "bigfleet.operator.shell.process": set(),
    "bigfleet.operator.pods.process": set(),
}
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]


def loaded_by(code: str, among: tuple[str, ...], *arguments: str, without: tuple[str, ...] = ()) -> set[str]:
    gone = "".join(f"sys.modules[{name!r}] = None; " for name in without)
    told = f"print('loaded:', *(n for n in {among!r} if sys.modules.get(n)))"
    whole = f"import sys, atexit; {gone}atexit.register(lambda: {told}); {code}"
    result = subprocess.run([sys.executable, "-c", whole, *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return set(result.stdout.splitlines()[-1].split()[1:])


def entered(script: str) -> str:
    module, _, function = SCRIPTS[script].partition(":")
    return f"from {module} import {function}; {function}()"


@pytest.mark.parametrize("module", [*BASE, *BASE_COMMANDS])
def test_the_base_install_is_enough(module: str) -> None:
    assert loaded_by(f"import {module}", HEAVY) == set()


@pytest.mark.parametrize(("module", "allowed"), EXTRAS.items())
def test_an_extra_imports_only_what_it_declares(module: str, allowed: set[str]) -> None:
    assert loaded_by(f"import {module}", HEAVY) <= allowed


@pytest.mark.parametrize("flag", ["--help", "--version", "--show-completion"])
@pytest.mark.parametrize("script", SCRIPTS)
def test_help_version_and_completion_load_nothing_slow(script: str, flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    shell = ("bash",) if flag == "--show-completion" else ()
    assert loaded_by(entered(script), SLOW, flag, *shell) == set()


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_works_where_only_the_base_is_installed(script: str) -> None:
    assert loaded_by(entered(script), HEAVY, "--help", without=HEAVY) == set()


@pytest.mark.parametrize(
    ("script", "arguments", "extra"),
    [
        ("fauxctl", ("list",), "sim"),
        ("fauxctl", ("run", "withdrawal"), "sim"),
        ("bigfleet", ("shard", "--fake-provider"), "shard"),
        ("bigfleet", ("demo", "--once"), "shard"),
        ("bigfleet", ("all-in-one", "--provider-listen", "127.0.0.1:0"), "shard"),
    ],
)
def test_a_command_that_needs_more_says_what_to_install(
    script: str, arguments: tuple[str, ...], extra: str, tmp_path: Path
) -> None:
    code = f"import sys; sys.modules['numpy'] = None; {entered(script)}"
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60
    )
    assert result.returncode == 1
    said = f"error: `{script} {arguments[0]}` needs numpy: pip install 'bigfleet[{extra}]'\n"
    assert result.stderr.endswith(said) and "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("script", "said", "code"),
    [
        ("bigfleet-operator", "error: --cluster-id is required\n", 2),
        ("bigfleet-unschedulable-pod-controller", "no cluster to talk to", 1),
    ],
)
def test_a_program_of_a_cluster_needs_nothing_beyond_the_base_to_begin(
    script: str, said: str, code: int, tmp_path: Path
) -> None:
    gone = "".join(f"sys.modules[{name!r}] = None; " for name in HEAVY)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    result = subprocess.run(
        [sys.executable, "-c", f"import sys; {gone}{entered(script)}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=environment,
    )
    assert result.returncode == code and said in result.stderr
