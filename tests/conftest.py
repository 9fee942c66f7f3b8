"""Loaded before any test module: bigfleet must be imported before grpc for TLS 1.3 to be the only version."""

import logging
from collections.abc import Iterator

import pytest

import bigfleet  # noqa: F401


@pytest.fixture(autouse=True)
def logs_end_with_their_test() -> Iterator[None]:
    """A command that ran in this process logs to what was its stderr; the next test has another one."""
    before = list(logging.getLogger().handlers)
    yield
    root = logging.getLogger()
    root.handlers[:] = [each for each in root.handlers if each in before or type(each) is not logging.StreamHandler]
