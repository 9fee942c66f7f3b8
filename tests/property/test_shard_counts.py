"""Counts that are entered late equal counts made from scratch, whatever happened to the machines in between."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from bigfleet.engine.batches import Stamp
from bigfleet.model.machine import MachineState
from bigfleet.model.penalty import MICRO, bucket_for
from bigfleet.shard.core.state.fleet import Fleet
from tests.strategies.shard_world import shape_of

SHAPES = (shape_of("p", price=0.35), shape_of("p", price=2.0))
STAMPS = (Stamp(), Stamp(5), Stamp(5, interruption_dollars=3.0))

machines = st.sampled_from(["m1", "m2", "m3"])
changes = st.fixed_dictionaries(
    {},
    optional={
        "state": st.sampled_from(list(MachineState)),
        "cluster": st.sampled_from(["", "c1", "c2"]),
        "stamp": st.sampled_from(STAMPS),
        "shape": st.sampled_from(SHAPES),
        "host": st.sampled_from(["", "h"]),
        "owned": st.booleans(),
    },
)
steps = st.one_of(
    st.tuples(st.just("add"), machines, st.sampled_from(list(MachineState)), st.sampled_from(SHAPES), st.booleans()),
    st.tuples(st.just("remove"), machines),
    st.tuples(st.just("change"), machines, changes),
    st.tuples(st.just("touch"), machines),
    st.tuples(st.just("look")),
    st.tuples(st.just("batch")),
)


@given(st.lists(steps, max_size=40))
def test_late_counts_equal_counts_from_scratch(history: list[tuple[object, ...]]) -> None:
    fleet = Fleet()
    for step in history:
        match step:
            case ("add", str(key), MachineState() as state, shape, bool(owned)) if key not in fleet.machines:
                fleet.add(key, key, state, shape, owned=owned, host="h")  # type: ignore[arg-type]
            case ("remove", str(key)) if key in fleet.machines:
                fleet.remove(fleet.machines[key])
            case ("change", str(key), dict(wanted)) if key in fleet.machines:
                fleet.change(fleet.machines[key], **wanted)
            case ("touch", str(key)) if key in fleet.machines:
                fleet.touch(fleet.machines[key])
            case ("look",):
                fleet.validate()
            case ("batch",):
                fleet.batch({})
    fleet.validate()
    mine = [record for record in fleet.all() if record.owned]
    states = Counter((r.state, r.shape.capacity_type, bucket_for(r.stamp.interruption_dollars)) for r in mine)
    dollars: Counter[str] = Counter()
    for record in mine:
        if record.host:  # what the provider bills: none of these shapes is reserved
            dollars[record.cluster] += round(record.shape.price * MICRO)
    assert +fleet.counts.states == states
    assert +fleet.counts.clusters == Counter((r.cluster, r.state) for r in mine if r.cluster)
    assert +fleet.counts.dollars == dollars
