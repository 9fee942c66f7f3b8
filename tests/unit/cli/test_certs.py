"""`bigfleetctl certs`: what it writes, with which modes and names, and what it refuses."""

import json
import stat
import sys
from pathlib import Path

import pytest
from cryptography import x509

from bigfleet.cli.bigfleetctl import main


def bigfleetctl(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["bigfleetctl", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.fixture
def pki(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    directory = tmp_path / "new" / "certs"
    assert bigfleetctl(monkeypatch, "certs", "init", "--dir", str(directory)) == 0
    capsys.readouterr()
    return directory


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_init_creates_directories_and_protects_the_key(pki: Path) -> None:
    assert mode(pki) == 0o700
    assert mode(pki / "ca.key") == 0o600
    certificate = x509.load_pem_x509_certificate((pki / "ca.crt").read_bytes())
    assert certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_issue_writes_one_identity_and_the_host_names(
    pki: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("shard", "shard-0", "--dns", "a.example.org", "--dns", "b.example.org", "--ip", "10.1.2.3")
    assert bigfleetctl(monkeypatch, "certs", "issue", *arguments, "--dir", str(pki), "-o", "json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["identity"] == "bigfleet://shard/shard-0"
    assert answer["ca"] == str(pki / "ca.crt")
    assert mode(Path(answer["key"])) == 0o600
    leaf = x509.load_pem_x509_certificate(Path(answer["cert"]).read_bytes())
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["bigfleet://shard/shard-0"]
    assert names.get_values_for_type(x509.DNSName) == ["a.example.org", "b.example.org"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["10.1.2.3"]
    leaf.verify_directly_issued_by(x509.load_pem_x509_certificate((pki / "ca.crt").read_bytes()))


@pytest.mark.parametrize("role", [("admin",), ("readonly",), ("cluster", "c"), ("provider", "p"), ("shard", "s")])
def test_every_role_can_be_issued_and_prints_the_flags_to_use(
    pki: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], role: tuple[str, ...]
) -> None:
    assert bigfleetctl(monkeypatch, "certs", "issue", *role, "--dir", str(pki)) == 0
    printed = capsys.readouterr().out
    assert f"bigfleet://{'/'.join(role)}" in printed
    assert f"--tls-cert {pki / '-'.join(role)}.crt" in printed


def test_days_bound_the_validity(pki: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bigfleetctl(monkeypatch, "certs", "issue", "admin", "--days", "7", "--dir", str(pki)) == 0
    leaf = x509.load_pem_x509_certificate((pki / "admin.crt").read_bytes())
    assert (leaf.not_valid_after_utc - leaf.not_valid_before_utc).days == 7


@pytest.mark.parametrize("command", [("init",), ("issue", "admin")])
def test_nothing_is_overwritten_without_force(
    pki: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    bigfleetctl(monkeypatch, "certs", "issue", "admin", "--dir", str(pki))
    before = {path.name: path.read_bytes() for path in pki.iterdir()}
    assert bigfleetctl(monkeypatch, "certs", *command, "--dir", str(pki)) == 1
    assert "exists: remove it or give --force" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in pki.iterdir()} == before
    assert bigfleetctl(monkeypatch, "certs", *command, "--dir", str(pki), "--force") == 0
    assert {path.name: path.read_bytes() for path in pki.iterdir()} != before


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("shard",), 2, "shard needs a name"),
        (("robot", "r2"), 2, "robot"),
        (("admin", "bob"), 2, "takes no name, got 'bob'"),
        (("cluster", "a/b"), 2, "identity cluster has the name 'a/b'"),
        (("shard", "s", "--ip", "localhost"), 2, "--ip 'localhost' is not an IPv4 or IPv6 address"),
        (("shard", "s", "--dns", "https://x"), 2, "--dns 'https://x' is not a DNS name"),
        (("admin", "--days", "0"), 2, "--days"),
    ],
)
def test_refusals_say_what_would_be_accepted(
    pki: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    assert bigfleetctl(monkeypatch, "certs", "issue", *arguments, "--dir", str(pki)) == code
    assert said in capsys.readouterr().err
    assert sorted(path.name for path in pki.iterdir()) == ["ca.crt", "ca.key"]


def test_issuing_without_an_authority_says_how_to_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bigfleetctl(monkeypatch, "certs", "issue", "admin", "--dir", str(tmp_path)) == 3
    assert f"bigfleetctl certs init --dir {tmp_path}" in capsys.readouterr().err


def names_of(path: Path) -> set[str]:
    leaf = x509.load_pem_x509_certificate(path.read_bytes())
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))}


def test_what_is_dialled_carries_the_names_of_this_host_unless_told_others(
    pki: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "rack7.example.org")
    for role in (("shard", "s"), ("provider", "p"), ("admin",), ("cluster", "c"), ("readonly",)):
        assert bigfleetctl(monkeypatch, "certs", "issue", *role, "--dir", str(pki)) == 0
    for dialled in ("shard-s", "provider-p", "admin"):
        assert names_of(pki / f"{dialled}.crt") >= {"localhost", "rack7.example.org", "127.0.0.1", "::1"}
    for dials in ("cluster-c", "readonly"):
        assert names_of(pki / f"{dials}.crt") == set()


def test_an_odd_host_name_does_not_stop_the_certificate(pki: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "my_mac:9")
    assert bigfleetctl(monkeypatch, "certs", "issue", "shard", "s", "--dir", str(pki)) == 0
    assert names_of(pki / "shard-s.crt") >= {"localhost", "127.0.0.1"}
