"""Machines new to one shard and known to another: all are asked, what strayed is pinned, then the asker is sure."""

from __future__ import annotations

from bigfleet.coordinator.core import commands as do
from bigfleet.coordinator.core.leader import Leader
from bigfleet.coordinator.core.ownership import owner_of
from bigfleet.coordinator.core.policy import Policy
from bigfleet.coordinator.core.records import Phase, Selector, Transfer
from bigfleet.coordinator.core.reports import LOOKS, TABLES, TRANSFERS, Report
from bigfleet.coordinator.core.state import State

ABLE = frozenset({TABLES, TRANSFERS, LOOKS})


class Fleet:
    def __init__(self, *names: str, capabilities: frozenset[str] = ABLE) -> None:
        self.leader = Leader(State(), 1, Policy())
        self.capabilities = capabilities
        self.cycles = dict.fromkeys(names, 0)
        for name in names:
            self.leader.state.apply(do.AddShard(name, "", 1, True))

    def report(self, name: str, **fields: object) -> tuple[int, int]:
        """One report with the newest table; what its answer asks to look for, and what it says is sure."""
        tables = self.leader.state.tables
        self.cycles[name] += 1
        shard = tables.shards[name]
        made = Report(
            name, self.cycles[name], 1, version=tables.version(shard), capabilities=self.capabilities, **fields
        )  # type: ignore[arg-type]
        counts, commands = self.leader.hear(made, self.cycles[name])
        assert counts
        for command in commands:
            self.leader.state.apply(command)
        assert self.leader.state.validate() == []
        shard = tables.shards[name]
        return self.leader.looks.look(shard), self.leader.looks.sure(shard, made)


def test_a_shard_alone_is_sure_at_once() -> None:
    fleet = Fleet("a")
    assert fleet.report("a", unsure=7) == (0, 7)


def test_everybody_looks_and_strays_are_pinned_before_the_asker_is_sure() -> None:
    fleet = Fleet("a", "b", "c")
    fleet.report("a")
    fleet.report("c")
    assert fleet.report("b", unsure=7) == (0, 0)
    look, _ = fleet.report("a")
    fleet.report("c", looked=look)
    assert fleet.report("b", unsure=7)[1] == 0, "a has not looked"
    fleet.report("a", looked=look, relabelled=(("p", "m", "a"),))
    assert fleet.report("b", unsure=7)[1] == 0, "what a names is not in everybody's table yet"
    fleet.report("c", looked=look)
    fleet.report("a", looked=look)
    assert fleet.report("b", unsure=7)[1] == 7
    tables = fleet.leader.state.tables
    assert owner_of(tables, "p", "m", {}) == tables.shards["a"].generation
    assert owner_of(tables, "q", "m", {}) == tables.default.generation  # type: ignore[union-attr]


def test_a_silent_shard_is_waited_for_until_it_is_removed() -> None:
    fleet = Fleet("a", "b", "silent")
    fleet.report("b", unsure=3)
    look, _ = fleet.report("a")
    fleet.report("a", looked=look)
    assert fleet.report("b", unsure=3)[1] == 0
    fleet.leader.state.apply(do.RemoveShard("silent"))
    fleet.report("a", looked=look)
    assert fleet.report("b", unsure=3)[1] == 3


def test_shards_that_cannot_look_are_not_waited_for() -> None:
    fleet = Fleet("a", "b", capabilities=frozenset({TABLES, TRANSFERS}))
    fleet.report("a")
    assert fleet.report("b", unsure=3) == (0, 3)


def test_a_shard_that_names_a_machine_moved_between_others_is_told_who_has_it() -> None:
    fleet = Fleet("a", "b", "c")
    tables = fleet.leader.state.tables
    donor, recipient = tables.shards["a"].generation, tables.shards["b"].generation
    wanted = Transfer("t", Phase.PROPOSED, donor, recipient, "p", selector=Selector("kind", "zone", 1), deadline=10**12)
    fleet.leader.state.apply(do.Propose(wanted))
    fleet.leader.state.apply(do.Release("t", ("m",), "p"))
    had = tables.version(tables.shards["c"])
    # c saw the machine relabelled, and its table is from before the transfer: to c the machine is still a's.
    fleet.report("c", relabelled=(("p", "m", "a"),))
    assert tables.version(tables.shards["c"]) > max(had, tables.transfers["t"].revision), "c needs a newer table"
    assert list(tables.transfers) == ["t"], "the machine is b's; nothing pins it to a"
    # With that table c has nothing left to name, and nobody waits for it.
    told = tables.version(tables.shards["c"])
    fleet.report("c", relabelled=(("p", "m", "a"),))
    assert tables.version(tables.shards["c"]) == told, "told once is enough: reports cost no writes"
    fleet.report("a", unsure=7)
    look, _ = fleet.report("b")
    fleet.report("b", looked=look)
    fleet.report("c", looked=look)
    assert fleet.report("a", unsure=7)[1] == 7


def test_a_look_by_an_outdated_table_pins_nothing() -> None:
    fleet = Fleet("a", "b")
    version = fleet.leader.state.tables.meta.fleet_version
    fleet.leader.state.apply(do.AssignDomain("topology.kubernetes.io/zone", "z", "b"))
    try:
        fleet.leader.state.apply(do.Pin((("p", "m", "a"),), version))
    except do.Refused:
        pass
    else:
        raise AssertionError("who owned it may have changed meanwhile")
    assert not fleet.leader.state.tables.transfers


def test_what_a_removed_shard_was_given_by_name_is_the_default_owners() -> None:
    fleet = Fleet("a", "b", "c")
    tables = fleet.leader.state.tables
    fleet.leader.state.apply(do.Pin((("p", "m", "c"), ("p", "n", "a")), tables.meta.fleet_version))
    fleet.leader.state.apply(do.RemoveShard("c"))
    assert fleet.leader.state.validate() == []
    assert owner_of(tables, "p", "m", {}) == tables.shards["a"].generation
    again = State(tables.rows()).tables
    assert {each.recipient for each in again.transfers.values()} == {tables.shards["a"].generation}
    assert all(each.phase is Phase.ADOPTED for each in again.transfers.values())


def test_after_the_last_shard_nobody_inherits_also_not_after_a_restart() -> None:
    fleet = Fleet("a", "b")
    state = fleet.leader.state
    state.apply(do.Pin((("p", "m", "b"),), state.tables.meta.fleet_version))
    rows = {(row.table, row.key): row for row in state.tables.rows()}
    for command in (do.RemoveShard("b"), do.RemoveShard("a"), do.AddShard("c", "", 9, True)):
        rows.update({(row.table, row.key): row for row in state.apply(command).rows})
    kept = [row for row in rows.values() if row.value is not None]
    assert State(kept).tables.rows() == state.tables.rows()
    assert not state.tables.transfers and state.validate() == []
