"""Which addresses count as this machine, and how listen addresses are read."""

import pytest

from bigfleet.transport.address import is_local, listen_address, split
from bigfleet.transport.errors import TransportError


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:1", "127.8.9.10:1", "localhost:1", "[::1]:1", "unix:/run/x.sock", "unix:///x", "unix-abstract:x",
     "dns:///localhost:1", "ipv4:127.0.0.1:1,127.0.0.2:1", "ipv6:[::1]:1"],
)  # fmt: skip
def test_local_addresses(address: str) -> None:
    assert is_local(address)


@pytest.mark.parametrize(
    "address",
    [":1", "0.0.0.0:1", "[::]:1", "10.0.0.1:1", "example.org:1", "localhost.example.org:1", "127.0.0.1.nip.io:1",
     "ipv4:127.0.0.1:1,10.0.0.1:1", "[::ffff:10.0.0.1]:1"],
)  # fmt: skip
def test_addresses_beyond_this_machine(address: str) -> None:
    assert not is_local(address)


def test_listen_addresses() -> None:
    assert listen_address(":7780") == "[::]:7780"
    assert listen_address("127.0.0.1:0") == "127.0.0.1:0"
    assert listen_address("[::1]:5") == "[::1]:5"
    assert listen_address("unix:/x") == "unix:/x"


@pytest.mark.parametrize("address", ["", "host", "host:", "host:x", "host:70000", "::1", "1:2:3", "host:-1"])
def test_malformed_listen_addresses(address: str) -> None:
    with pytest.raises(TransportError):
        listen_address(address)


def test_split_removes_brackets() -> None:
    assert split("[::1]:80") == ("::1", 80)
