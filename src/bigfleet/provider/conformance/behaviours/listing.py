"""List, revisions and pagination: filters, caps, cursors, and that a list never lags behind an ack."""

from __future__ import annotations

import asyncio
import itertools
import time

from bigfleet.provider.conformance.registry import Capability, Family, Lane
from bigfleet.provider.conformance.states import State, state_name
from bigfleet.provider.conformance.trial import Trial
from bigfleet.provider.conformance.verdicts import Breach, Skip, SkipKind
from bigfleet.wire import provider_pb2 as pb

LISTING = Family("List, Revision & Pagination")

_REV = Capability.SINCE_REVISION
_MOST_PAGES = 64


@LISTING.behaviour("B901", "FilterByStateAndUnion", slots=0, exclusive=True)
async def filter_by_state_and_union(t: Trial) -> None:
    """A state filter returns that state only, and a filter of several states exactly their union."""
    singles: dict[str, int] = {}
    for state in list(State)[1:]:
        for machine in (await t.listing((state,))).machines:
            t.require(machine.state == state, f"List({state.name}) returned {_told(machine)}")
            if state in (State.SPECULATIVE, State.IDLE, State.CONFIGURED):
                singles[machine.id] = machine.state
    union = {m.id: m.state for m in (await t.listing((State.SPECULATIVE, State.IDLE, State.CONFIGURED))).machines}
    for machine_id in set(union) ^ set(singles):
        # Spot reclaim or another client may have moved it meanwhile; only a machine that stayed put accuses anyone.
        reply = await t.get(machine_id)
        now = reply.exchange.answer
        recorded = union.get(machine_id, singles.get(machine_id))
        if isinstance(now, pb.Machine) and now.state == recorded:
            raise Breach(f"{machine_id} is in only one of: the union filter, the single-state filters")


@LISTING.behaviour("B902", "MaxResultsCap", slots=0, exclusive=True)
async def max_results_cap(t: Trial) -> None:
    """max_results is a hard ceiling; 0 means no ceiling; an empty fleet cannot be certified."""
    full = {m.id for m in (await t.listing()).machines}
    t.require(bool(full), "the fleet is empty")
    for cap in (1, 2, 3):
        page = [m.id for m in (await t.listing(max_results=cap)).machines]
        t.require(1 <= len(page) <= cap, f"List(max_results={cap}) returned {len(page)} machines")
        t.require(set(page) <= full, f"List(max_results={cap}) returned a machine the full List does not know")
    uncapped = len((await t.listing(max_results=0)).machines)
    t.require(uncapped == len(full), f"List(max_results=0) returned {uncapped} of {len(full)} machines")


@LISTING.behaviour("B903", "RevisionAdvancesAndDelta", capability=_REV)
async def revision_advances_and_delta(t: Trial) -> None:
    """A mutation changes the revision, and the delta since the old one contains the machine."""
    before = (await t.listing()).revision
    await t.machine.to_idle()
    after = await t.listing()
    t.require(after.revision != before, "the revision did not change although a machine was created")
    await _delta_contains(t, before, {t.machine.id})


@LISTING.behaviour("B904", "EmptyDeltaWhenQuiescent", slots=0, capability=_REV, exclusive=True)
async def empty_delta_when_quiescent(t: Trial) -> None:
    """With nothing going on, the delta since the current revision is empty."""
    await _quiet_delta(t, (await t.listing()).revision)


@LISTING.behaviour("B905", "MonotonicRevisionCursor", slots=(1, 2), capability=_REV)
async def monotonic_revision_cursor(t: Trial) -> None:
    """Each of four mutations yields a new revision, and every older cursor returns everything changed after it."""
    cursors: list[bytes] = []
    touched: list[str] = []
    for i in range(4):
        m = t.machines[i % len(t.machines)]
        cursors.append((await t.listing()).revision)
        step = i // len(t.machines)
        await (m.to_idle, m.to_configured, m.to_drained, m.to_configured)[step]()
        touched.append(m.id)
    cursors.append((await t.listing()).revision)
    for older, newer in itertools.pairwise(cursors):
        t.require(older != newer, "two revisions are equal although a machine changed between them")
    for i, cursor in enumerate(cursors[:-1]):
        await _delta_contains(t, cursor, set(touched[i:]))


@LISTING.behaviour("B906", "GarbageCursorIsFullList", slots=0)
async def garbage_cursor_is_full_list(t: Trial) -> None:
    """A cursor the provider does not recognise means a full list, never an error and never a gap."""
    full = {m.id for m in (await t.listing()).machines}
    for junk in (b"", b"not-a-revision", b"\x00\xff\xfe\x80", b"-1", b"9" * 400, b"x" * 4096):
        got = {m.id for m in (await t.listing(since=junk)).machines}
        t.require(full <= got, f"since_revision {junk[:12]!r} returned {len(got)} of {len(full)} machines")


@LISTING.behaviour("B907", "PagingSetCompleteness", slots=(3, 5), capability=_REV, exclusive=True)
async def paging_set_completeness(t: Trial) -> None:
    """Threading a capped delta through its cursors reaches every changed machine exactly once.

    Two styles are accepted. Continuation: the cursor of a page leads to the rest. Head-echo: the cursor is the head, so
    the second page is empty and the cap was a sample. Handing out some of the rest and losing some is a gap a shard
    never notices.
    """
    for changes in ([m.to_idle for m in t.machines], [m.to_configured for m in t.machines]):
        cursor = (await t.listing()).revision
        # Side by side, so that neighbouring machines get neighbouring revisions: an off-by-one cursor steps over one.
        await asyncio.gather(*(change() for change in changes))
        changed = {m.id for m in t.machines}
        whole = {m.id for m in (await t.listing(since=cursor)).machines}
        t.require(changed <= whole, f"the delta misses {sorted(changed - whole)}")
        # Pages of one have a cursor between any two neighbours.
        for page_size in (1, 2):
            await thread_pages(t, cursor, whole, page_size=page_size)


@LISTING.behaviour("B908", "NoBumpFromIdleReconcile", slots=0, capability=_REV, exclusive=True)
async def no_bump_from_idle_reconcile(t: Trial) -> None:
    """Background reconciling without a change does not touch revisions: for 750 ms every delta stays empty."""
    anchor = (await t.listing()).revision
    deadline = time.monotonic() + 0.75
    while time.monotonic() < deadline:
        await _quiet_delta(t, anchor)
        await asyncio.sleep(0.05)


@LISTING.behaviour("B909", "OpaqueCursorRoundTripAndCorruption", slots=0, capability=_REV, exclusive=True)
async def opaque_cursor_round_trip_and_corruption(t: Trial) -> None:
    """The exact cursor gives an empty delta, a corrupted one the full list, and a flipped bit never an error."""
    listed = await t.listing()
    full, cursor = {m.id for m in listed.machines}, listed.revision
    await _quiet_delta(t, cursor)
    for broken in (cursor + b"!", b"~" + cursor, cursor + b"\x00\xff"):
        got = {m.id for m in (await t.listing(since=broken)).machines}
        t.require(full <= got, f"the corrupted cursor {broken!r} returned {len(got)} of {len(full)} machines")
    flipped = cursor[:-1] + bytes([cursor[-1] ^ 1])
    strangers = {m.id for m in (await t.listing(since=flipped)).machines} - full
    t.require(not strangers, f"a flipped cursor returned unknown machines {sorted(strangers)[:3]}")


@LISTING.behaviour("B910", "HostLossLeavesFullList", start=State.IDLE, lane=Lane.FAULT, profiles=("fault",))
async def host_loss_leaves_full_list(t: Trial) -> None:
    """A host that dies on its own disappears from the full List, or returns as an empty Speculative slot.

    A shard has no edge from Configured to Failed: a dead machine that stays listed as Configured is capacity that pods
    wait for in vain. Needs `faults.host_loss`, a cluster id or a command that kills the host.
    """
    fault, m = t.faults.host_loss, t.machine
    if fault is None:
        raise Skip("faults.host_loss is not configured", SkipKind.OPTIONAL)
    (await m.configure(cluster=fault.cluster or None)).accepted()
    if not fault.cluster:
        await m.settle(State.CONFIGURED)
    if fault.command:
        await t.hook(fault.command, m.id)
    deadline = time.monotonic() + t.limits.drain
    while time.monotonic() < deadline:
        listed = {x.id: x for x in (await t.listing()).machines}.get(m.id)
        if listed is None or (listed.state == State.SPECULATIVE and not listed.cluster):
            return
        await asyncio.sleep(t.limits.poll)
    raise Breach(f"{m.id} lost its host and is still listed")


@LISTING.behaviour("B911", "ListNeverLagsAck", slots=1)
async def list_never_lags_ack(t: Trial) -> None:
    """Once a call is acknowledged, every Get and List shows it: reads never return the state from before the ack.

    A shard that reads an older state after its own ack would act on it again.
    """
    m = t.machine
    steps = (
        (m.create, State.SPECULATIVE, State.IDLE),
        (m.configure, State.IDLE, State.CONFIGURED),
        (m.drain, State.CONFIGURED, State.IDLE),
    )
    for call, source, goal in steps:
        (await call()).accepted()
        for machine in (await m.listed(), await m.get()):
            if machine.state == source:
                raise Breach(f"{m.id} is still shown as {source.name} after its {call.__name__} was acknowledged")
        await m.settle(goal)
        if (seen := await m.listed()).state != goal:
            raise Breach(f"Get shows {m.id} {goal.name}, the List after it {state_name(seen.state)}")


@LISTING.behaviour("B912", "CompletionAdvancesRevision", capability=_REV, exclusive=True)
async def completion_advances_revision(t: Trial) -> None:
    """Reaching the goal is a change too: who follows the deltas ends up with what Get shows.

    A shard that lists incrementally would otherwise see a machine in transition for ever.
    """
    m = t.machine
    cursor = (await t.listing()).revision
    known = State((await m.get()).state)
    for call, goal in ((m.create, State.IDLE), (m.configure, State.CONFIGURED), (m.drain, State.IDLE)) * 2:
        if known == goal:
            continue
        (await call()).accepted()
        done, deadline = False, time.monotonic() + t.limits.to_reach(goal)
        while not done and time.monotonic() < deadline:
            # The machine is looked at first: what the delta after it does not say, no delta ever will.
            done = (await m.get()).state == goal
            page = await t.listing(since=cursor)
            cursor = page.revision
            known = next((State(x.state) for x in page.machines if x.id == m.id), known)
            await asyncio.sleep(0 if done else t.limits.poll)
        t.require(done, f"{m.id} did not reach {goal.name}")
        t.require(
            known == goal,
            f"Get shows {m.id} {goal.name}, but the deltas end at {known.name}: its completion has no revision",
        )


@LISTING.behaviour("B913", "PagingSurvivesChangeOfPageEnd", slots=(3, 4), capability=_REV, exclusive=True)
async def paging_survives_change_of_page_end(t: Trial) -> None:
    """A page's cursor leads to the rest even when the last machine of the page has changed or gone since.

    Applies to continuation cursors: a head-echo cursor has no rest.
    """
    cursor = (await t.listing()).revision
    await asyncio.gather(*(m.to_idle() for m in t.machines))
    whole = {m.id for m in (await t.listing(since=cursor)).machines}
    page = await t.listing(max_results=2, since=cursor)
    first = [m.id for m in page.machines]
    if not page.more and not (await t.listing(max_results=2, since=page.revision)).machines:
        t.skip("this provider's capped Lists have no continuation")
    end = next((m for m in t.machines if m.id == first[-1]), None)
    if end is None:
        raise t.lacking("another client's machine ended the page")
    await (end.to_deleted() if t.capabilities.delete else end.to_configured())
    seen: set[str] = set(first)
    for _ in range(_MOST_PAGES):
        page = await t.listing(max_results=2, since=page.revision)
        if not page.machines:
            break
        seen |= {m.id for m in page.machines}
    missing = whole - seen
    t.require(not missing, f"after {end.id} at the page's end had changed, the cursor skipped {sorted(missing)[:3]}")


@LISTING.behaviour("B914", "StateFilterWorksWithCursor", slots=2, capability=_REV, exclusive=True)
async def state_filter_works_with_cursor(t: Trial) -> None:
    """A delta with a state filter holds exactly the changed machines in that state."""
    first, second = t.machines[:2]
    cursor = (await t.listing()).revision
    await first.to_idle()
    await second.to_idle()
    await second.to_configured()
    for state, wanted in ((State.IDLE, first), (State.CONFIGURED, second)):
        found = {m.id: m.state for m in (await t.listing((state,), since=cursor)).machines}
        t.require(wanted.id in found, f"List({state.name}) since {cursor!r} misses {wanted.id}, which changed to it")
        strange = [i for i, seen in found.items() if seen != state]
        t.require(not strange, f"List({state.name}) since {cursor!r} returned {strange[:3]} in other states")


async def thread_pages(t: Trial, cursor: bytes, whole: set[str], page_size: int) -> None:
    """Follow continuation cursors from `cursor` and require that they cover `whole` without repeats."""
    seen: list[str] = []
    promised = False
    for number in range(max(_MOST_PAGES, len(whole) // page_size + 2)):
        page = await t.listing(max_results=page_size, since=cursor)
        ids = [m.id for m in page.machines]
        t.require(len(ids) <= page_size, f"page {number + 1} has {len(ids)} machines; the cap was {page_size}")
        strangers = set(ids) - whole
        t.require(not strangers, f"page {number + 1} contains {sorted(strangers)[:3]}, not in the uncapped delta")
        repeated = set(ids) & set(seen)
        t.require(not repeated, f"page {number + 1} repeats {sorted(repeated)[:3]}")
        if number == 1 and not ids and not promised:
            return  # Head-echo: the cap was a sample, and the empty rest says so.
        seen += ids
        promised, cursor = page.more, page.revision
        if not ids:
            break
    missing = whole - set(seen)
    t.require(
        not missing, f"following the cursors never reached {len(missing)} machines, such as {sorted(missing)[:3]}"
    )


async def _delta_contains(t: Trial, cursor: bytes, wanted: set[str]) -> None:
    missing = wanted - {m.id for m in (await t.listing(since=cursor)).machines}
    t.require(not missing, f"the delta since {cursor!r} misses the changed machines {sorted(missing)}")


async def _quiet_delta(t: Trial, cursor: bytes) -> None:
    changed = [_told(m) for m in (await t.listing(since=cursor)).machines]
    t.require(not changed, f"nothing happened, yet the delta since {cursor!r} holds {changed[:3]}")


def _told(machine: pb.Machine) -> str:
    return f"{machine.id} ({state_name(machine.state)})"
