"""Property and fuzz: seeded random walks, tokens, maps and malformed requests judged by a small oracle."""

from __future__ import annotations

from bigfleet.provider.conformance.behaviours.fencing import judge
from bigfleet.provider.conformance.registry import Family
from bigfleet.provider.conformance.reply import Code
from bigfleet.provider.conformance.states import State
from bigfleet.provider.conformance.subject import Subject, expect_bound, unimplemented
from bigfleet.provider.conformance.trial import Session, Trial

FUZZ = Family("Property / Fuzz")

_ALPHABET = "\x00\x01\t az09-_./=:é漢字🚀"
_EDGES = {
    "create": (State.SPECULATIVE, State.IDLE),
    "configure": (State.IDLE, State.CONFIGURED),
    "drain": (State.CONFIGURED, State.IDLE),
    "delete": (State.IDLE, State.SPECULATIVE),
}


@FUZZ.behaviour("B1201", "FencingLexicographicOracle", start=State.IDLE)
async def fencing_lexicographic_oracle(t: Trial) -> None:
    """240 tokens on one machine: replays, near misses, epoch bumps with low sequences and far points.

    Accepted exactly when greater than the running maximum, FAILED_PRECONDITION otherwise.
    """
    shard, mark = t.shard("oracle"), None
    for _ in range(240):
        epoch, sequence = mark or (1, 1)
        kind = t.rng.randrange(4)
        if kind == 1:
            epoch, sequence = epoch + t.rng.randint(-2, 2), sequence + t.rng.randint(-2, 2)
        elif kind == 2:
            epoch, sequence = epoch + 1, t.rng.randint(0, 2)
        elif kind == 3:
            epoch, sequence = t.rng.randint(0, 2 * epoch + 2), t.rng.randint(0, 10**6)
        token = shard.at(max(0, epoch), max(0, sequence) or 1)
        mark = await judge(t.machine, token, mark)


@FUZZ.behaviour("B1202", "MetadataRoundTrip", start=State.IDLE)
async def metadata_round_trip(t: Trial) -> None:
    """20 random UTF-8 maps go through Configure and come back identical on Get and List; every Drain leaves none."""
    m = t.machine
    for _ in range(20):
        metadata = {_text(t) + f"#{i}": _text(t) for i in range(t.rng.randint(0, 11))}
        await m.to_configured(metadata=metadata)
        expect_bound(await m.get(), t.cluster, metadata)
        expect_bound(await m.listed(State.CONFIGURED), t.cluster, metadata)
        await m.to_drained(grace=0)
        await m.clean_at(State.IDLE)


@FUZZ.behaviour("B1203", "RandomLifecycleSequences", slots=(1, 5))
async def random_lifecycle_sequences(t: Trial) -> None:
    """Five walks of nine random calls: legal edges succeed, everything else changes nothing and is never fenced."""
    for walk in range(5):
        m = t.machines[walk % len(t.machines)]
        state = State((await m.get()).state)
        for _ in range(9):
            state = await _random_step(t, m, state, t.rng.choice(sorted(_EDGES)))


@FUZZ.behaviour("B1204", "MultiShardFencedInterleavings", slots=(2, 4), start=State.IDLE)
async def multi_shard_fenced_interleavings(t: Trial) -> None:
    """Three shards, several machines, 200 tokens: the fence answers exactly as one mark per (shard, machine) would."""
    shards = [t.shard(f"multi{i}") for i in range(3)]
    marks: dict[tuple[int, int], tuple[int, int]] = {}
    for _ in range(200):
        s, k = t.rng.randrange(len(shards)), t.rng.randrange(len(t.machines))
        epoch, sequence = marks.get((s, k), (2, 5))
        token = shards[s].at(max(0, epoch + t.rng.randint(-1, 1)), max(1, sequence + t.rng.randint(-3, 4)))
        marks[s, k] = await judge(t.machines[k], token, marks.get((s, k)))
    fresh: Session = t.shard("multi-fresh")
    for m in t.machines:
        (await m.create(fresh.at(1, 1))).not_fenced().answered()


@FUZZ.behaviour("B1205", "RequestShapeCodeDiscipline", start=State.IDLE)
async def request_shape_code_discipline(t: Trial) -> None:
    """Malformed requests get the code the contract names: no id is INVALID_ARGUMENT, an unknown one NOT_FOUND.

    Odd graces, tokens, maps and blobs on a real machine get anything but FAILED_PRECONDITION.
    """
    m = t.machine
    for _ in range(4):
        ghost, shard = t.ghost(), t.shard("shape")
        token = shard.at(t.rng.randint(1, 9), t.rng.randint(1, 9))
        for call in (t.create, t.configure, t.drain):
            (await call("", token)).coded(Code.INVALID_ARGUMENT)
            (await call(ghost)).coded(Code.NOT_FOUND)
            (await call(t.ghost(), token)).coded(Code.NOT_FOUND)
        deleted = await t.delete(ghost)
        if not (unimplemented(deleted) and not t.capabilities.delete):
            deleted.coded(Code.NOT_FOUND)
        (await m.drain(grace=-t.rng.randint(1, 10**9))).not_fenced().answered()
    bulk = {f"k{i}": "v" * 8 for i in range(t.rng.randint(400, 799))}
    reply = (await m.configure(metadata=bulk)).not_fenced().answered()
    if reply.ok:
        await m.settle(State.CONFIGURED)
        await m.to_drained(grace=0)
    blob = t.blob + b"#" * t.rng.randint(64 * 1024, 128 * 1024)
    odd = t.shard("odd").at(t.rng.randint(2**40, 2**62), 0)
    reply = (await m.configure(odd, blob=blob)).not_fenced().answered()
    if reply.ok:
        await m.settle(State.CONFIGURED)
        await m.to_drained(grace=0)


async def _random_step(t: Trial, m: Subject, state: State, kind: str) -> State:
    source, goal = _EDGES[kind]
    reply = (await getattr(m, kind)()).not_fenced().answered()
    if kind == "delete" and not t.capabilities.delete:
        reply.coded(Code.UNIMPLEMENTED)
        return state
    if state is source:
        reply.accepted()
        await m.settle(goal)
        return goal
    if state is not goal:
        reply.rejected(f"{kind} is out of position at {state.name}")
    await m.stays(state, 0.08)
    return state


def _text(t: Trial) -> str:
    return "".join(t.rng.choice(_ALPHABET) for _ in range(t.rng.randint(0, 23)))
