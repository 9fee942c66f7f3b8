"""Identities as values: what parses, what does not, and how sets of names are judged."""

import pytest

from bigfleet.transport.identity import (
    ADMIN,
    READONLY,
    Identity,
    IdentityError,
    cluster,
    provider,
    shard,
    single_identity,
)


@pytest.mark.parametrize(
    ("uri", "identity"),
    [
        ("bigfleet://cluster/prod-1", cluster("prod-1")),
        ("bigfleet://shard/shard-0", shard("shard-0")),
        ("bigfleet://provider/aws.eu", provider("aws.eu")),
        ("bigfleet://admin", ADMIN),
        ("bigfleet://readonly", READONLY),
    ],
)
def test_every_kind_survives_the_round_trip(uri: str, identity: Identity) -> None:
    assert Identity.parse(uri) == identity
    assert identity.uri == str(identity) == uri


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "bigfleet://",
        "bigfleet://robot/x",
        "bigfleet://cluster",
        "bigfleet://cluster/",
        "bigfleet://cluster/a/b",
        "bigfleet://cluster/a b",
        "bigfleet://cluster/a%2fb",
        "bigfleet://cluster/a?b",
        "bigfleet://admin/",
        "bigfleet://admin/root",
        "BIGFLEET://admin",
        "bigfleet://Admin",
        "spiffe://admin",
        "bigfleet://cluster/" + "x" * 254,
    ],
)
def test_anything_else_is_refused(uri: str) -> None:
    with pytest.raises(IdentityError):
        Identity.parse(uri)


def test_a_set_of_names_must_hold_exactly_one_of_ours() -> None:
    assert single_identity(["https://x", "bigfleet://admin"]) == ADMIN
    with pytest.raises(IdentityError, match="presented: none"):
        single_identity(["https://x"])
    with pytest.raises(IdentityError, match="presented: bigfleet://admin, bigfleet://admin"):
        single_identity(["bigfleet://admin", "bigfleet://admin"])
