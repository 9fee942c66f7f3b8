"""Secrets and identity: the bootstrap blob never comes back, and a shard id belongs to its certificate."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterable

from google.protobuf.message import Message

from bigfleet.provider.conformance.behaviours.failure import failing_configure
from bigfleet.provider.conformance.registry import Capability, Family, Lane
from bigfleet.provider.conformance.reply import Code, Reply
from bigfleet.provider.conformance.states import State
from bigfleet.provider.conformance.subject import Subject
from bigfleet.provider.conformance.trial import Trial
from bigfleet.provider.conformance.verdicts import Breach

SECRETS = Family("Secrets & Identity")

_RULE = "The bootstrap blob carries the cluster's join secret: never echoed, logged, stored in a record or quoted."


@SECRETS.behaviour("B1301", "BlobNeverComesBack")
async def blob_never_comes_back(t: Trial) -> None:
    """No byte of a bootstrap blob appears in a record, an ack or an error text.

    Checked on a Configured machine (Get, List, ack: labels, metadata, last_error, all of it) and on refused Configures:
    out of position, unknown machine, no id, stale token, other cluster.
    """
    m, shard = t.machine, t.shard("blob")
    marker = f"join-secret-{secrets.token_hex(12)}"
    blob = t.blob + f"# {marker}\n".encode()
    refused = [
        await m.configure(blob=blob),
        await t.configure(t.ghost(), blob=blob),
        await t.configure("", blob=blob),
    ]
    await m.to_idle()
    ack = (await m.configure(shard.at(5, 5), blob=blob)).accepted()
    refused.append(await m.configure(shard.at(1, 1), blob=blob))
    await m.settle(State.CONFIGURED)
    refused.append(await m.configure(cluster=t.config.other_cluster, blob=blob))
    for reply in [ack, *refused]:
        _clean_reply(reply, marker)
    _clean_records(await _records(m, State.CONFIGURED), marker)
    await m.to_drained()
    _clean_records(await _records(m, State.IDLE), marker)


@SECRETS.behaviour("B1302", "ShardIdMatchesCertificate", start=State.IDLE)
async def shard_id_matches_certificate(t: Trial) -> None:
    """Over mTLS a caller speaks only for the shard its certificate names: another shard_id is PERMISSION_DENIED.

    Applies when the config gives an issuer (`tls.issuer_cert`, `tls.issuer_key`) so that the suite can play two shards.
    The refused call leaves no mark behind.
    """
    if not t.target.checks_identity:
        t.skip("no certificate issuer is configured; the suite cannot play two identities")
    honest, thief = t.shard("honest"), t.shard("thief")
    (await t.machine.create(honest.at(1, 1))).not_fenced().answered()
    reply = await t.create(t.machine.id, honest.at(99, 99), identity=thief.shard_id)
    reply.coded(Code.PERMISSION_DENIED, Code.UNAUTHENTICATED)
    (await t.machine.create(honest.at(1, 2))).not_fenced().answered()


@SECRETS.behaviour("B1303", "BlobNeverInDiagnosis", slots=0, lane=Lane.FAULT, profiles=("fault",))
async def blob_never_in_diagnosis(t: Trial) -> None:
    """When a Configure fails, last_error explains it without quoting the blob the backend choked on."""
    marker = f"join-secret-{secrets.token_hex(12)}"
    m = await failing_configure(t, blob=t.blob + f"# {marker}\n".encode())
    _clean_records(await _records(m, State.FAILED), marker)


@SECRETS.behaviour("B1304", "BlobNeverLogged", start=State.IDLE)
async def blob_never_logged(t: Trial) -> None:
    """The provider's own log does not contain the blob, neither of a Configure it carried out nor of one it refused.

    Applies when the suite starts the provider itself and so can read what it prints.
    """
    if t.provider_log is None:
        t.skip("the suite did not start this provider and cannot read its log")
    marker = f"join-secret-{secrets.token_hex(12)}"
    blob = t.blob + f"# {marker}\n".encode()
    await t.machine.to_configured(blob=blob)
    (await t.machine.configure(cluster=t.config.other_cluster, blob=blob)).answered()
    (await t.configure(t.ghost(), blob=blob)).answered()
    await t.machine.to_drained()
    t.require(not _found(marker, [t.provider_log()]), "the provider's log contains the bootstrap blob", _RULE)


@SECRETS.behaviour("B1305", "BlobNeverOutlivesTheHost", capability=Capability.DELETE, profiles=("cloud",))
async def blob_never_outlives_the_host(t: Trial) -> None:
    """A slot whose host was bootstrapped, drained and deleted carries nothing of the blob: no label, no error."""
    m = t.machine
    marker = f"join-secret-{secrets.token_hex(12)}"
    await m.to_idle()
    await m.to_configured(blob=t.blob + f"# {marker}\n".encode())
    await m.to_drained()
    await m.to_deleted()
    _clean_records(await _records(m, State.SPECULATIVE), marker)


async def _records(m: Subject, state: State) -> list[Message]:
    return [await m.get(), await m.listed(state)]


def _clean_reply(reply: Reply, marker: str) -> None:
    if _found(marker, [reply.details]):
        # The quoted text itself stays out of the report.
        reply.exchange.details = "<the error text quotes the bootstrap blob>"
        raise reply.breach("the error text quotes the bootstrap blob", _RULE)
    if reply.exchange.answer is not None:
        _clean_records([reply.exchange.answer], marker)


def _clean_records(records: Iterable[Message], marker: str) -> None:
    for record in records:
        if _found(marker, [record.SerializeToString().decode("utf-8", "replace")]):
            raise Breach("the bootstrap blob comes back inside a machine record", contract=_RULE)


def _found(marker: str, texts: Iterable[str]) -> bool:
    raw = marker.encode()
    # Base64 depends on the offset within the blob: three alignments, trimmed to what the marker alone decides.
    shapes = {marker, raw.hex(), raw.hex().upper()}
    for pad in range(3):
        shapes.add(base64.b64encode(b"x" * pad + raw).decode()[4 if pad else 0 : -4])
    return any(shape in text for text in texts for shape in shapes)
