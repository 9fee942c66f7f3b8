"""What a part imports is what its users must install: the base needs no NumPy, Kubernetes client or etcd."""

import subprocess
import sys

import pytest

HEAVY = ("numpy", "numba", "scipy", "textual", "lightkube", "httpx", "jinja2", "aetcd", "jsonschema")
BASE = (
    "bigfleet.model.profile",
    "bigfleet.wire.provider_pb2",
    "bigfleet.transport",
    "bigfleet.crd",
    "bigfleet.provider.kit",
    "bigfleet.provider.client",
    "bigfleet.provider.fake",
    "bigfleet.provider.conformance.cli",
    "bigfleet.virtual.kernel",
    "bigfleet.operator.core.session",
    "bigfleet.operator.core.mirror.mirror",
    "bigfleet.operator.session_codec",
    "bigfleet.operator.report_codec",
    "bigfleet.cli.bigfleet",
    "bigfleet.cli.bigfleetctl",
)
EXTRAS = {"bigfleet.engine": {"numpy", "numba"}}


def loaded_by(module: str) -> set[str]:
    code = f"import sys, {module}; print(' '.join(n for n in {HEAVY!r} if n in sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


@pytest.mark.parametrize("module", BASE)
def test_the_base_install_is_enough(module: str) -> None:
    assert loaded_by(module) == set()


@pytest.mark.parametrize(("module", "allowed"), EXTRAS.items())
def test_an_extra_imports_only_what_it_declares(module: str, allowed: set[str]) -> None:
    assert loaded_by(module) <= allowed
