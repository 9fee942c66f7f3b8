"""Random commands for the coordinator's state machine, drawn over few names so that they collide."""

from __future__ import annotations

from hypothesis import strategies as st

from bigfleet.coordinator.core import commands as do
from bigfleet.coordinator.core.records import Phase, Provider, Rails, Selector, Transfer
from bigfleet.coordinator.core.state import State

SHARDS = ("s0", "s1", "s2", "s3")
CLUSTERS = ("c0", "c1", "c2")
RACK, ZONE = "topology.bigfleet/rack", "topology.kubernetes.io/zone"
DOMAINS = ((RACK, "r0"), (RACK, "r1"), (ZONE, "z0"), (ZONE, "z1"), ("other", "x"))
MACHINES = ("m0", "m1", "m2", "m3")

shards = st.sampled_from(SHARDS)
domains = st.sampled_from(DOMAINS)
machines = st.lists(st.sampled_from(MACHINES), unique=True, max_size=3).map(tuple)

plain = st.one_of(
    st.builds(do.AddShard, st.sampled_from(("", *SHARDS)), st.just("h:1"), st.just(5), st.booleans()),
    st.builds(do.UpdateShard, shards, st.sampled_from(("", "h:2")), st.booleans()),
    st.builds(do.RemoveShard, shards),
    st.builds(do.BindCluster, st.sampled_from(CLUSTERS), shards, st.just(6)),
    st.builds(do.MoveCluster, st.sampled_from(CLUSTERS), shards, st.just(7)),
    st.builds(lambda domain, shard: do.AssignDomain(*domain, shard), domains, shards),
    st.builds(lambda domain: do.UnassignDomain(*domain), domains),
    st.builds(lambda domain, shard: do.MoveDomain(*domain, shard), domains, shards),
    st.builds(do.UpsertProvider, st.builds(Provider, st.sampled_from(("", "p0", "p1")), st.just("h:3"))),
    st.builds(do.RemoveProvider, st.sampled_from(("p0", "p1"))),
    st.builds(do.SetRails, st.builds(Rails, st.sampled_from(("", *SHARDS)), st.booleans(), st.booleans())),
    st.builds(
        do.SetQuota,
        st.sampled_from(("", "p0")),
        st.sampled_from(("eu", "us")),
        st.lists(st.tuples(shards, st.integers(0, 3), machines), max_size=2).map(tuple),
    ),
    st.builds(do.SetKeys, st.sampled_from(((RACK, ZONE), (ZONE,), ()))),
    st.just(do.Sweep(2)),
)


@st.composite
def commands(draw: st.DrawFn, state: State) -> do.Command:
    """A command; those about transfers and confirmations mostly name something the state really has."""
    tables = state.tables
    if draw(st.integers(0, 9)) < 5:
        return draw(plain)
    transfers = st.sampled_from((*sorted(tables.transfers), "none"))
    kind = draw(st.integers(0, 7))
    if kind == 0:
        named = st.sampled_from((*sorted(tables.generations), 999_999))
        return do.Propose(
            Transfer(
                id=f"t{tables.meta.revision}",
                phase=Phase.PROPOSED,
                donor=draw(named),
                recipient=draw(named),
                provider=draw(st.sampled_from(("", "p0", "p1"))),
                region="eu",
                speculative=draw(st.booleans()),
                selector=Selector("type", "z0", draw(st.integers(0, 3))),
                machines=draw(machines),
            )
        )
    if kind == 1:
        return do.Release(draw(transfers), draw(machines))
    if kind == 2:
        return do.Adopt(draw(transfers), draw(st.integers(1, 9)))
    if kind == 3:
        return do.CallOff(draw(transfers))
    if kind == 4:
        known = [(*place, domain.revision) for place, domain in sorted(tables.domains.items())]
        return do.SettleDomains(tuple(draw(st.lists(st.sampled_from((*known, (RACK, "r0", 0))), max_size=2))))
    if kind == 5:
        owner = st.sampled_from((*sorted(tables.shards), "nobody"))
        named = [(draw(st.sampled_from(("p0", "p1"))), machine, draw(owner)) for machine in draw(machines)]
        return do.Pin(tuple(named), tables.meta.fleet_version - draw(st.integers(0, 1)))
    if kind == 6:
        return do.Vouch(draw(st.sampled_from((*sorted(tables.shards), "nobody"))))
    rows = sorted(tables.withdrawn.values(), key=lambda row: row.key)
    if rows:
        row = draw(st.sampled_from(rows))
        return do.ForgetWithdrawn(tables.generations[row.holder].id, row.topology_key, row.value, row.revision)
    return draw(plain)
