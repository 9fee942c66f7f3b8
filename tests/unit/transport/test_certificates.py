"""The leaf pair in use: replaced when both files agree, kept when they do not."""

from pathlib import Path

import pytest

from bigfleet.transport.authority import create_authority, issue
from bigfleet.transport.certificates import LeafFiles, TlsFiles
from bigfleet.transport.identity import ADMIN, shard


@pytest.fixture
def tls(tmp_path: Path) -> TlsFiles:
    create_authority(tmp_path)
    issued = issue(tmp_path, shard("s"))
    return TlsFiles(str(issued.certificate), str(issued.key), str(tmp_path / "ca.crt"))


def test_an_untouched_pair_is_the_same_object(tls: TlsFiles) -> None:
    leaf = LeafFiles(tls)
    assert leaf.current() is leaf.current()


def test_a_rotation_caught_half_way_keeps_the_old_pair(tls: TlsFiles, tmp_path: Path) -> None:
    leaf = LeafFiles(tls)
    before = leaf.current()
    newer = issue(tmp_path, ADMIN)
    newer.key.replace(tls.key)
    assert leaf.current() is before
    newer.certificate.replace(tls.cert)
    after = leaf.current()
    assert after is not before
    assert after.chain == Path(tls.cert).read_bytes()


@pytest.mark.parametrize("content", [b"", b"not pem", b"\xff" * 10])
def test_garbage_keeps_the_old_pair(tls: TlsFiles, content: bytes) -> None:
    leaf = LeafFiles(tls)
    before = leaf.current()
    Path(tls.cert).write_bytes(content)
    assert leaf.current() is before
    Path(tls.cert).unlink()
    assert leaf.current() is before


def test_the_key_is_in_no_representation(tls: TlsFiles) -> None:
    assert "PRIVATE" not in repr(LeafFiles(tls).current())
