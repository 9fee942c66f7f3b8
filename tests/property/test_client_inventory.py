"""Whoever applies only what the index calls changed knows what was listed last, whatever happened between."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from bigfleet.provider.client.frames import MachineFrame
from bigfleet.provider.client.inventory import FrameScan, InventoryIndex
from bigfleet.wire import provider_pb2 as pb

IDS = ("a", "b")
# A List that shows these states, or a call or Get that showed another one to the caller in between.
listed = st.tuples(st.just("list"), st.tuples(*(st.integers(1, 4) for _ in IDS)))
seen = st.tuples(st.just("seen"), st.tuples(st.sampled_from(range(len(IDS))), st.integers(1, 4)))


def frame(states: tuple[int, ...]) -> bytes:
    machines = [pb.Machine(id=id, state=state) for id, state in zip(IDS, states, strict=True)]  # type: ignore[arg-type]
    return pb.MachineList(machines=machines).SerializeToString()


@example([("list", (1, 1)), ("list", (2, 1)), ("seen", (0, 4)), ("list", (3, 1)), ("list", (2, 1))])
@given(st.lists(st.one_of(listed, seen), max_size=12))
def test_a_reader_of_changes_is_never_left_with_an_old_state(history: list[tuple[str, tuple[int, ...]]]) -> None:
    index, known = InventoryIndex(), dict.fromkeys(IDS, 0)
    for now, (what, facts) in enumerate(history):
        if what == "seen":
            machine, state = facts
            known[IDS[machine]] = state
            index.expect_change(IDS[machine], 2 * now)
            continue
        scan = FrameScan(MachineFrame(frame(facts)), index, set(), began_ns=2 * now + 1)
        for records, _ in scan.slices(10):
            for record in records:
                message = pb.Machine.FromString(record)
                known[message.id] = int(message.state)
            scan.commit()
        assert tuple(known.values()) == facts
