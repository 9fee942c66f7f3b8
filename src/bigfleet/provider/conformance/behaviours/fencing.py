"""Fencing: one mark per (shard, machine), strictly increasing, checked before anything else is looked at.

Create is the probe: repeated towards Idle it is otherwise always a no-op, so only the fence can refuse it.
"""

from __future__ import annotations

from bigfleet.provider.conformance.registry import Capability, Family
from bigfleet.provider.conformance.reply import Code, Reply, Token
from bigfleet.provider.conformance.states import State
from bigfleet.provider.conformance.subject import Subject, unimplemented
from bigfleet.provider.conformance.trial import Trial

FENCING = Family("Fencing")


@FENCING.behaviour("B301", "FenceBeforeNotFound", slots=0)
async def fence_before_not_found(t: Trial) -> None:
    """The fence is checked before existence: a stale caller may not learn whether a machine exists.

    A first call at (5,5) on an unknown id is NOT_FOUND yet advances the mark of that (shard, id) pair; every stale call
    after it is FAILED_PRECONDITION, and a fresh one NOT_FOUND again.
    """
    ghost, shard = t.ghost(), t.shard("ghost")
    (await t.create(ghost, shard.at(5, 5))).coded(Code.NOT_FOUND)
    stale = shard.at(1, 1)
    (await t.create(ghost, stale)).fenced()
    (await t.configure(ghost, stale)).fenced()
    (await t.drain(ghost, stale)).fenced()
    deleted = await t.delete(ghost, stale)
    if not (unimplemented(deleted) and not t.capabilities.delete):
        deleted.fenced()
    (await t.create(ghost, shard.at(9, 9))).coded(Code.NOT_FOUND)


@FENCING.behaviour("B302", "PerShardAndPerMachineIsolation", slots=3, start=State.IDLE)
async def per_shard_and_per_machine_isolation(t: Trial) -> None:
    """Marks are kept per (shard, machine): neither another shard nor another machine moves them.

    One live shard works on many machines at once, so its tokens arrive out of order across machines; a mark per shard
    would fence the shard against itself.
    """
    a, b, c = (t.shard(x) for x in "abc")
    first, second, third = t.machines[:3]
    _passes(await first.create(a.at(9, 9)))
    _passes(await second.create(b.at(7, 3)))
    _passes(await third.create(c.at(1, 1)))
    (await first.create(a.at(1, 1))).fenced()
    (await second.create(b.at(7, 3))).fenced()
    (await third.create(c.at(1, 1))).fenced()
    _passes(await second.create(b.at(7, 4)))
    d = t.shard("d")
    _passes(await first.create(d.at(5, 30)))
    _passes(await second.create(d.at(5, 7)), "the mark of another machine does not count here")
    (await second.create(d.at(5, 7))).fenced()
    (await first.create(d.at(5, 30))).fenced()
    (await second.create(d.at(4, 999))).fenced()


@FENCING.behaviour("B303", "LexicographicOrdering", start=State.IDLE)
async def lexicographic_ordering(t: Trial) -> None:
    """Epoch first, then sequence, both strictly: an equal token is stale, a higher epoch accepts any sequence."""
    m, shard = t.machine, t.shard("lex")
    script = [
        (True, 2, 5), (False, 2, 5), (False, 2, 4), (False, 1, 9), (False, 1, 99999), (True, 2, 6), (False, 2, 6),
        (False, 2, 5), (True, 3, 0), (False, 3, 0), (False, 2, 999999), (True, 3, 1), (True, 4, 0), (False, 4, 0),
        (True, 10, 7), (False, 10, 7), (False, 9, 999),
    ]  # fmt: skip
    for passes, epoch, sequence in script:
        reply = await m.create(shard.at(epoch, sequence))
        _passes(reply) if passes else reply.fenced()


@FENCING.behaviour("B305", "ReadsNeverFence", start=State.IDLE)
async def reads_never_fence(t: Trial) -> None:
    """Get and List carry no token and work whatever the fence has just refused; the machine does not move."""
    m, shard = t.machine, t.shard("reads")
    _passes(await m.create(shard.at(7, 7)))
    before = await m.get()
    for i in range(4):
        (await m.create(shard.at(1, i))).fenced()
        after = await m.get()
        await t.listing()
        await t.listing((State.IDLE,))
        t.require(after.state == before.state, f"{m.id} moved although every call was fenced")


@FENCING.behaviour("B306", "FenceBeforeIdempotencyConfigure", start=State.IDLE)
async def fence_before_idempotency_configure(t: Trial) -> None:
    """A stale Configure at a Configured machine is fenced, not answered with the cached operation id.

    A fresh token on the same repeat gets the original id.
    """
    m, shard = t.machine, t.shard("idem")
    first = await m.to_configured(shard.at(5, 5))
    (await m.configure(shard.at(1, 1))).fenced("the fence precedes idempotency")
    t.same_id(first, (await m.configure(shard.at(5, 6))).accepted(), "fresh repeat of Configure")
    await m.stays(State.CONFIGURED, 0)


@FENCING.behaviour("B307", "FenceBeforeIdempotencyDrain", start=State.IDLE)
async def fence_before_idempotency_drain(t: Trial) -> None:
    """A stale Drain at a drained machine is fenced, not answered with the cached operation id."""
    m, shard = t.machine, t.shard("idem")
    await m.to_configured()
    first = await m.to_drained(shard.at(5, 5))
    (await m.drain(shard.at(1, 1))).fenced("the fence precedes idempotency")
    t.same_id(first, (await m.drain(shard.at(5, 6))).accepted(), "fresh repeat of Drain")
    await m.stays(State.IDLE, 0)


@FENCING.behaviour("B308", "ZeroTokenBypassesFencing", slots=2)
async def zero_token_bypasses_fencing(t: Trial) -> None:
    """The zero token (no shard, epoch 0, sequence 0) is never fenced and leaves no mark."""
    first, second = t.machines[:2]
    await first.to_idle()
    (await first.create()).accepted()
    await second.to_idle()
    (await second.create()).accepted()


@FENCING.behaviour("B309", "ShardSessionMonotonicAccepted")
async def shard_session_monotonic_accepted(t: Trial) -> None:
    """A well-behaved shard, one sequence per call, is never fenced; its first token replayed is."""
    m, shard = t.machine, t.shard("session")
    await m.to_idle(shard.next())
    for _ in range(2):
        await m.to_configured(shard.next())
        await m.to_drained(shard.next())
    (await m.create(shard.at(1, 1))).fenced()


@FENCING.behaviour("B310", "NewEpochFencesOldReplay", start=State.IDLE)
async def new_epoch_fences_old_replay(t: Trial) -> None:
    """A restarted shard takes over by its higher epoch, and everything its former self still sends is fenced."""
    m, shard = t.machine, t.shard("epoch")
    await m.to_configured(shard.next())
    await m.to_drained(shard.next())
    _passes(await m.create(shard.next()))
    shard.restart()
    await m.to_configured(shard.next())
    (await m.drain(shard.at(1, 1))).fenced()
    (await m.drain(shard.at(1, 3))).fenced()
    await m.stays(State.CONFIGURED, 0)


@FENCING.behaviour("B311", "MarkAdvancesEvenWhenOpRejected")
async def mark_advances_even_when_op_rejected(t: Trial) -> None:
    """A token that passes the fence advances the mark even if the operation is then refused."""
    m, shard = t.machine, t.shard("mark")
    (await m.drain(shard.at(5, 5))).rejected("the machine is SPECULATIVE")
    (await m.create(shard.at(5, 4))).fenced("the refused Drain at (5,5) advanced the mark")
    (await m.create(shard.at(5, 6))).accepted()
    await m.settle(State.IDLE, t.limits.create)


@FENCING.behaviour("B312", "RandomStreamMatchesOracle", start=State.IDLE)
async def random_stream_matches_oracle(t: Trial) -> None:
    """200 random tokens around the mark: accepted exactly when strictly greater than the highest accepted so far."""
    m, shard = t.machine, t.shard("stream")
    mark: tuple[int, int] | None = None
    for _ in range(200):
        epoch, sequence = mark or (3, 3)
        token = (max(0, epoch + t.rng.randint(-1, 2)), max(0, sequence + t.rng.randint(-3, 4)))
        mark = await judge(m, shard.at(*token), mark)


@FENCING.behaviour("B313", "FencesSurviveDelete", start=State.IDLE, capability=Capability.DELETE, profiles=("cloud",))
async def fences_survive_delete(t: Trial) -> None:
    """Delete gives the host back, not the marks: the slot keeps its id, and a zombie of before stays fenced."""
    m, shard = t.machine, t.shard("delete")
    _passes(await m.create(shard.at(5, 5)))
    await m.to_deleted(shard.at(5, 6))
    (await m.create(shard.at(5, 5))).fenced("it was accepted before the Delete")
    (await m.create(shard.at(5, 6))).fenced("it is the token of the Delete")
    await m.stays(State.SPECULATIVE, 0)
    _passes(await m.create(shard.at(5, 7)))


async def judge(m: Subject, token: Token, mark: tuple[int, int] | None) -> tuple[int, int]:
    """Send a token, compare with the rule, and return the mark that follows."""
    reply = await m.create(token)
    if mark is None or (token.epoch, token.sequence) > mark:
        _passes(reply, f"the mark is {mark}")
        return (token.epoch, token.sequence)
    reply.fenced(f"the mark is already {mark}")
    return mark


def _passes(reply: Reply, why: str = "the token is strictly newer than the mark of this shard and machine") -> Reply:
    if reply.code is Code.FAILED_PRECONDITION:
        reply.accepted(why)
    return reply.answered()
