"""shard_metadata: stored and echoed byte for byte, replaced whole, cleared with the binding."""

from __future__ import annotations

from bigfleet.provider.conformance.registry import Family
from bigfleet.provider.conformance.reply import Code
from bigfleet.provider.conformance.states import State
from bigfleet.provider.conformance.subject import expect_bound, expect_unbound
from bigfleet.provider.conformance.trial import Trial

METADATA = Family("Metadata")

_HOSTILE_KEYS = 55


@METADATA.behaviour("B501", "HostileMetadataEchoedVerbatim", start=State.IDLE)
async def hostile_metadata_echoed_verbatim(t: Trial) -> None:
    """55 awkward keys and values come back byte-identical on four Gets and on List.

    NUL in key and value, C0 and C1 controls, every plane of Unicode, empty values, trailing spaces, JSON and SQL look-
    alikes: a provider never interprets the map, so none of it may matter.
    """
    metadata = hostile_map()
    await t.machine.to_configured(metadata=metadata)
    for _ in range(4):
        expect_bound(await t.machine.get(), t.cluster, metadata)
    expect_bound(await t.machine.listed(State.CONFIGURED), t.cluster, metadata)


@METADATA.behaviour("B502", "ClearedOnDrainAndCleanlyReplaced", start=State.IDLE)
async def cleared_on_drain_and_cleanly_replaced(t: Trial) -> None:
    """Drain clears the whole map; the next Configure stores exactly its own, with no key of the old one."""
    m, other = t.machine, t.config.other_cluster
    await m.to_configured(metadata={"old-1": "a", "old-2": "b", "shared": "old"})
    await m.to_drained()
    expect_unbound(await m.get())
    await m.to_configured(cluster=other, metadata={"new-1": "c", "shared": "new"})
    expect_bound(await m.get(), other, {"new-1": "c", "shared": "new"})


@METADATA.behaviour("B503", "OversizedMetadataVerbatimOrInvalidArgument", start=State.IDLE)
async def oversized_metadata_verbatim_or_invalid_argument(t: Trial) -> None:
    """Two MiB of metadata (256 keys of 8 KiB) are stored verbatim or refused whole with INVALID_ARGUMENT."""
    m = t.machine
    metadata = {f"conformance.huge/{i:03d}": chr(97 + i % 26) * 8192 for i in range(256)}
    reply = (await m.configure(metadata=metadata)).coded(Code.OK, Code.INVALID_ARGUMENT)
    if reply.ok:
        expect_bound(await m.settle(State.CONFIGURED, 2 * t.limits.configure), t.cluster, metadata)
        await m.to_drained()
    else:
        expect_unbound(await m.stays(State.IDLE))


@METADATA.behaviour("B504", "MetadataVisibleInConfiguringOrAtSettle", start=State.IDLE)
async def metadata_visible_in_configuring_or_at_settle(t: Trial) -> None:
    """The map is there from acceptance: any CONFIGURING record already carries it verbatim, and so does Configured."""
    metadata = {"bigfleet.lucy.sh/assigned-need-fingerprint": "f" * 40, "empty": ""}
    ack = (await t.machine.configure(metadata=metadata)).accepted()
    records = [ack.snapshot] if ack.snapshot else []
    for machine in [*records, *await t.machine.trace(State.CONFIGURED)]:
        if machine.state in (State.CONFIGURING, State.CONFIGURED):
            expect_bound(machine, t.cluster, metadata)


@METADATA.behaviour("B505", "NoCallerAliasingAfterConfigure", start=State.IDLE)
async def no_caller_aliasing_after_configure(t: Trial) -> None:
    """The provider keeps its own copy: what the caller does to its map later, or asks in a retry, changes nothing."""
    m, sent = t.machine, {"stable": "value", "second": "entry"}
    original = dict(sent)
    await m.to_configured(metadata=sent)
    sent["stable"] = "changed"
    sent["third"] = "added"
    expect_bound(await m.get(), t.cluster, original)
    (await m.configure(metadata=sent)).not_fenced().answered()
    expect_bound(await m.get(), t.cluster, original)


def hostile_map() -> dict[str, str]:
    """Exactly 55 entries a careless store would mangle."""
    samples = {
        "nul-in-value": "a\x00b",
        "nul\x00in-key": "v",
        "only-nul": "\x00",
        "empty": "",
        "space-end": "trailing   ",
        "space-start": "   leading",
        "tab-newline": "\t\r\n",
        "c0": "".join(chr(i) for i in range(1, 32)),
        "c1": "".join(chr(i) for i in range(0x80, 0xA0)),
        "del": "\x7f",
        "emoji": "🚀👩‍👩‍👧‍👦",
        "cjk": "漢字かな交じり文",
        "rtl": "שלום عالم",
        "combining": "e\u0301 vs \u00e9",
        "bom": "\ufeffx",
        "zero-width": "a\u200bb\u2060c",
        "line-separators": "a\u2028b\u2029c",
        "noncharacter": "\ufffe\uffff",
        "astral": "\U0001f9ff\U0010fffd",
        "ключ": "значение",
        "json": '{"a": [1, null]}',
        "sql": "'); DROP TABLE machines;--",
        "percent": "%s %d %%",
        "shell": "$(id) `id` ${HOME}",
        "backslash": "\\n\\0\\",
        "quotes": "\"'`",
        "html": "<b>&amp;</b>",
        "path": "../../etc/passwd",
        "number": "0007",
        "float": "+Inf",
        "bool": "true",
        "null": "null",
        " key with spaces ": "x",
        "UPPER": "x",
        "upper": "y",
        "a/b": "1",
        "a.b": "2",
        "a:b": "3",
        "a=b": "4",
        "a,b;c|d": "5",
        "long-value": "0123456789" * 400,
        "k" * 253: "long key",
        "bigfleet.lucy.sh/assigned-group": "topology.bigfleet/rack\x00gang-7",
    }
    for i in range(_HOSTILE_KEYS - len(samples)):
        samples[f"filler-{i}"] = chr(0x2500 + i) * (i + 1)
    return samples
