"""Certificates that are about to be a problem are told of once, counted, and end readiness when nobody can connect."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import structlog

from bigfleet.transport.authority import create_authority, issue
from bigfleet.transport.certificate_watch import DAY, CertificateWatch
from bigfleet.transport.certificates import PLAINTEXT, TlsFiles
from bigfleet.transport.identity import ADMIN, shard


class Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def tls(tmp_path: Path) -> TlsFiles:
    create_authority(tmp_path)
    issued = issue(tmp_path, shard("s"))
    return TlsFiles(str(issued.certificate), str(issued.key), str(tmp_path / "ca.crt"))


@pytest.fixture
def said() -> list[dict[str, object]]:
    with structlog.testing.capture_logs() as lines:
        yield lines  # type: ignore[misc]


def watch(tls: TlsFiles) -> tuple[CertificateWatch, Clock]:
    clock = Clock()
    return CertificateWatch(tls, "bigfleet_shard_", clock), clock


def test_the_metric_counts_down_and_readiness_ends_with_the_certificate(tls: TlsFiles) -> None:
    watched, clock = watch(tls)
    left = watched.expiries()["cert"]
    assert left > 0 and watched.unusable() is None
    [family] = watched.collect()
    assert family.name == "bigfleet_shard_certificate_expiry_seconds"
    assert {sample.labels["file"] for sample in family.samples} == {"cert", "ca"}
    clock.now += left + 1
    assert watched.expiries()["cert"] < 0
    assert tls.cert in (watched.unusable() or "")


@pytest.mark.parametrize(
    ("left", "words"), [(6 * DAY, "less than 7 days"), (DAY / 2, "less than 1 days"), (-1, "expired")]
)
def test_a_certificate_that_is_about_to_expire_is_told_of_once(
    tls: TlsFiles, said: list[dict[str, object]], left: float, words: str
) -> None:
    watched, clock = watch(tls)
    watched.look()
    assert not said
    clock.now += watched.expiries()["cert"] - left
    for _ in range(5):
        watched.look()
        clock.now += 1
    assert [line["file"] for line in said] == [tls.cert] and words in str(said[0]["err"])


@pytest.mark.parametrize("spoil", [lambda path: path.write_bytes(b"garbage"), lambda path: path.unlink()])
def test_garbage_and_missing_files_are_told_of_once_and_when_they_are_over(
    tls: TlsFiles, said: list[dict[str, object]], spoil: object
) -> None:
    watched, _ = watch(tls)
    good = Path(tls.cert).read_bytes()
    spoil(Path(tls.cert))  # type: ignore[operator]
    for _ in range(5):
        watched.look()
    assert len(said) == 1 and tls.cert in str(said[0]["err"])
    assert watched.unusable() is None, "the pair read before stays in use"
    Path(tls.cert).write_bytes(good)
    watched.look()
    assert [line["event"] for line in said] == ["certificate trouble", "certificate trouble is over"]


def test_a_key_that_everybody_can_read_is_told_of_once(tls: TlsFiles, said: list[dict[str, object]]) -> None:
    Path(tls.key).chmod(0o644)
    watched, _ = watch(tls)
    watched.look()
    watched.look()
    assert [line["file"] for line in said] == [tls.key] and "chmod 0600" in str(said[0]["err"])


def test_a_certificate_that_is_not_valid_yet_is_told_and_ends_readiness(
    tls: TlsFiles, said: list[dict[str, object]]
) -> None:
    watched, clock = watch(tls)
    clock.now -= DAY
    watched.look()
    watched.look()
    assert "is not valid before" in (watched.unusable() or "") and tls.cert in (watched.unusable() or "")
    assert {line["file"] for line in said} == {tls.cert, tls.ca} and len(said) == 2


def test_a_rotation_to_the_certificate_of_somebody_else_is_told_once_and_ends_readiness(
    tls: TlsFiles, tmp_path: Path, said: list[dict[str, object]]
) -> None:
    watched = CertificateWatch(tls, "bigfleet_shard_", own=shard("s"))
    watched.look()
    assert watched.unusable() is None and not said
    issue(tmp_path, ADMIN, file_name="shard-s", force=True)
    watched.look()
    watched.look()
    assert len(said) == 1 and "bigfleet://admin" in str(said[0]["err"])
    assert "bigfleet://admin, this is bigfleet://shard/s" in (watched.unusable() or "")
    issue(tmp_path, shard("s"), force=True)
    assert watched.unusable() is None


def test_plaintext_has_nothing_to_watch(said: list[dict[str, object]]) -> None:
    watched, _ = watch(PLAINTEXT)
    watched.look()
    assert watched.expiries() == {} and watched.unusable() is None and not said
