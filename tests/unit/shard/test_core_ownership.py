"""Ownership: by domain, by the coordinator's table, by transfer; machines of others are known but not acted on."""

from __future__ import annotations

from typing import Any

import pytest

from bigfleet.shard.contract import events as ev
from bigfleet.shard.contract.coordination import (
    AssignDomain,
    ClusterBinding,
    CoordinatorInstruction,
    OwnershipTable,
    Phase,
    TableTransfer,
    UnassignDomain,
)
from tests.strategies.shard_world import OLD, World, cpu, reshaped, test_config

ZONE = "topology.kubernetes.io/zone"
RACK = "topology.bigfleet/rack"
ME = "shard-0"


def zoned(**config: object) -> World:
    world = World(test_config(**config))
    world.provider.several(3, "a", zone="a")
    world.provider.several(3, "b", zone="b")
    return world


def table(version: int, *, term: int = 1, default: str = "", **parts: Any) -> OwnershipTable:
    return OwnershipTable(term, version, default, **parts)


def domains(**owners: str) -> tuple[tuple[str, str, str], ...]:
    return tuple((ZONE, zone, shard) for zone, shard in owners.items())


def test_only_machines_of_the_given_domains_are_used() -> None:
    world = zoned(domain=((ZONE, "b"),))
    world.operator("c").send(cpu("c", 6))
    world.run(30)
    assert world.provider.configured("c") == ["b0", "b1", "b2"]
    assert world.core.published.machines == 3 and len(world.core.state.fleet.machines) == 6


def test_with_a_coordinator_and_no_table_nothing_is_touched() -> None:
    world = zoned(with_coordinator=True)
    operator = world.operator("c")
    operator.send(cpu("c", 1))
    world.run(30)
    assert not world.provider.calls
    assert [ack.outcome for ack in operator.of(ev.Acknowledgement)][-1] == "applied"


def test_the_table_is_obeyed_journalled_and_survives_a_restart() -> None:
    world = zoned(with_coordinator=True)
    world.told(term=3, table=table(7, term=3, domains=domains(a=ME, b="other")))
    operator = world.operator("c")
    operator.send(cpu("c", 6))
    world.run(30)
    assert world.provider.configured("c") == ["a0", "a1", "a2"]
    world.crash()
    world.run(5)
    assert world.core.published.ownership_version == 7
    assert world.core.published.machines == 3


def test_the_first_key_with_an_assigned_value_decides() -> None:
    world = World(test_config(with_coordinator=True))
    world.provider.add("m", zone="a", labels={RACK: "r1"})
    world.provider.add("n", zone="a", labels={RACK: "r2"})
    world.told(table=table(1, domains=((ZONE, "a", ME), (RACK, "r1", "other"))))
    world.run(5)
    assert world.owned() == {"n"}


def test_a_domain_nobody_owns_for_now_is_not_acted_on() -> None:
    world = zoned(with_coordinator=True)
    world.told(table=table(1, default=ME, domains=domains(a="")))
    world.run(5)
    assert world.owned() == {"b0", "b1", "b2"}


def test_a_stale_term_changes_nothing() -> None:
    world = zoned(with_coordinator=True)
    world.told(term=5, table=table(1, term=5, default=ME))
    world.run(5)
    world.told(term=4, table=table(2, term=4))
    world.run(5)
    assert world.core.published.machines == 6 and world.core.published.term == 5


def test_an_older_version_of_the_table_changes_nothing() -> None:
    world = zoned(with_coordinator=True)
    world.told(table=table(5, default=ME))
    world.told(table=table(4))
    world.run(5)
    assert world.core.published.ownership_version == 5 and world.core.published.machines == 6


def test_the_term_outlives_a_restart_so_a_replaced_coordinator_is_not_listened_to() -> None:
    world = zoned(with_coordinator=True)
    world.told(term=5, table=table(1, term=5, default=ME))
    world.crash()
    world.run(5)
    order = CoordinatorInstruction("late", 4, UnassignDomain(ZONE, "a"))
    assert not world.told(term=4, table=table(9, term=4), instructions=(order,))
    assert world.core.published.term == 5 and len(world.owned()) == 6
    assert world.told(term=5, instructions=(order,))["late"].outcome.name == "REJECTED_STALE"


@pytest.mark.parametrize("config", [{"domain": ((ZONE, "a"),)}, {"with_coordinator": True}])
def test_a_relabelled_machine_keeps_its_owner_at_the_next_table_and_after_a_restart(config: dict[str, object]) -> None:
    world = zoned(**config)
    world.told(table=table(1, domains=domains(a=ME, b="other")))
    world.run(2)
    reshaped(world.provider.units["a0"], zone="b")
    reshaped(world.provider.units["b0"], zone="a")
    world.run(15)
    mine = {"a0", "a1", "a2"}
    assert world.owned() == mine
    world.told(table=table(2, domains=domains(a=ME, b="other", c="third")))
    assert world.owned() == mine
    world.crash()
    world.run(15)
    assert world.owned() == mine


def test_a_machine_relabelled_while_the_shard_was_down_keeps_its_owner() -> None:
    world = zoned(with_coordinator=True)
    world.told(table=table(1, domains=domains(a=ME, b="other")))
    world.run(15)
    world.crash()
    reshaped(world.provider.units["a0"], zone="b")
    reshaped(world.provider.units["b0"], zone="a")
    world.run(15)
    assert world.owned() == {"a0", "a1", "a2"}


def test_an_id_that_was_lost_and_is_sold_again_elsewhere_stays_with_its_owner() -> None:
    world = zoned(with_coordinator=True)
    world.told(table=table(1, domains=domains(a=ME, b="other")))
    world.run(15)
    sold, bought = world.provider.units.pop("a0"), world.provider.units.pop("b0")
    world.run(60)
    assert "a0" not in world.core.state.fleet.machines
    world.provider.add(sold.id, zone="b")
    world.provider.add(bought.id, zone="a")
    world.run(30)
    world.crash()
    world.run(15)
    assert world.owned() == {"a0", "a1", "a2"}, "whoever never saw it gone still judges it by where it was"


def test_a_moved_domain_takes_relabelled_machines_along() -> None:
    world = zoned(with_coordinator=True)
    world.told(table=table(1, domains=domains(a=ME, b="other")))
    world.run(5)
    reshaped(world.provider.units["a0"], zone="b")
    world.run(15)
    world.told(table=table(2, domains=domains(a="other", b=ME)))
    assert world.owned() == {"b0", "b1", "b2"}


def test_machines_handed_over_count_for_the_named_provider_only() -> None:
    world = World(test_config(providers=("p", "q"), with_coordinator=True))
    for provider in world.providers.values():
        provider.add("m", zone="a")
    world.run(5)
    moved = TableTransfer("t", Phase.ADOPTED, ME, "other", "q", ("m",))
    world.told(table=table(1, default=ME, transfers=(moved,)))
    kept = {(record.provider, record.owned) for record in world.core.state.fleet.all()}
    assert kept == {("p", True), ("q", False)}
    received = TableTransfer("t", Phase.RELEASED, "other", ME, "q", ("m",))
    world.told(table=table(2, default="other", transfers=(received,)))
    world.crash()
    world.run(15)
    kept = {(record.provider, record.owned) for record in world.core.state.fleet.all()}
    assert kept == {("p", False), ("q", True)}


def test_a_transfer_between_others_is_nobody_elses() -> None:
    world = zoned(with_coordinator=True)
    passing = TableTransfer("t", Phase.RELEASED, "second", "third", "p", ("a0",))
    world.told(table=table(1, default=ME, transfers=(passing,)))
    world.run(5)
    assert "a0" not in world.owned()


def test_domains_assigned_one_by_one_survive_a_restart() -> None:
    world = zoned(with_coordinator=True)
    world.told(instructions=(CoordinatorInstruction("i", 1, AssignDomain(ZONE, "b")),))
    world.run(5)
    assert world.owned() == {"b0", "b1", "b2"}
    world.crash()
    world.run(5)
    assert world.owned() == {"b0", "b1", "b2"}
    again = world.told(instructions=(CoordinatorInstruction("u", 1, UnassignDomain(ZONE, "b")),))
    assert again["u"].outcome.name == "ACCEPTED" and len(world.owned()) == 6, "no domain means no limit"


def test_a_repeated_instruction_is_acknowledged_and_not_repeated() -> None:
    world = zoned(with_coordinator=True)
    assign = CoordinatorInstruction("i", 1, AssignDomain(ZONE, "b"))
    world.told(instructions=(assign, CoordinatorInstruction("", 1, AssignDomain(ZONE, "a"))))
    assert world.told(instructions=(assign,))["i"].reason == "duplicate-redelivery"
    assert world.told(instructions=(CoordinatorInstruction("x", 1),))["x"].outcome.name == "REJECTED_INVALID"
    world.run(5)
    assert world.owned() == {"b0", "b1", "b2"}


def test_bindings_are_honoured_without_a_table_and_after_a_restart() -> None:
    world = zoned(with_coordinator=True)
    world.told(table=table(1, default=ME))
    world.told(bindings=(ClusterBinding("there", "other", "10.0.0.9:7780"), ClusterBinding("here", ME)))
    for _ in range(2):
        there, here = world.operator("there", OLD), world.operator("here", connect=False)
        here.connect(bound_shard_id="other")
        there.send(cpu("there", 1))
        here.send(cpu("here", 1))
        world.run(20)
        assert world.provider.configured("there") == [] and len(world.provider.configured("here")) == 1
        world.crash()


def test_a_cluster_of_another_shard_is_referred_there_once_it_has_no_machines_here() -> None:
    world = zoned(with_coordinator=True)
    world.told(table=table(1, default=ME))
    held = world.operator("other")
    held.send(cpu("other", 1))
    world.run(20)
    world.told(bindings=(ClusterBinding("mine", ME), ClusterBinding("other", "shard-9", "10.0.0.9:7780")))
    assert world.core.state.sessions.of("other") is not None, "its machine keeps it here"
    held.disconnect()
    for key in list(world.core.state.fleet.bound["other"]):
        world.provider.lose_host(key)
    world.run(60)
    world.crash()
    world.run(20)
    able, old, mine = world.operator("other"), world.operator("other", OLD), world.operator("mine")
    assert [(each.code, each.referral) for each in able.closed[:1]] == [
        (ev.CloseCode.FAILED_PRECONDITION, "10.0.0.9:7780")
    ]
    assert not old.closed and not mine.closed, "who cannot be sent elsewhere is kept and credited"


def test_a_cluster_is_referred_after_its_machines_went_to_the_other_shard_and_serve_it_still() -> None:
    world = zoned(with_coordinator=True)
    world.told(table=table(1, default=ME))
    cluster = world.operator("c")
    cluster.send(cpu("c", 2))
    world.run(20)
    assert len(world.provider.configured("c")) == 2
    world.told(table=table(2, default="shard-9"))
    world.told(bindings=(ClusterBinding("c", "shard-9", "10.0.0.9:7780"),))
    assert [each.referral for each in cluster.closed] == ["10.0.0.9:7780"]
    assert len(world.provider.configured("c")) == 2, "and nothing happens to them"


def test_what_a_cluster_lacks_that_went_to_its_own_shard_is_not_told_here_any_more() -> None:
    """It is served there; whoever reads the old shard's needs would look for pods that run."""
    world = zoned(with_coordinator=True)
    world.told(table=table(1, default=ME))
    cluster, stays = world.operator("c"), world.operator("stays")
    cluster.send(cpu("c", 2), cpu("c", 5000, priority=7))
    stays.send(cpu("stays", 1))
    world.run(20)
    elsewhere = (ClusterBinding("c", "shard-9", "10.0.0.9:7780"),)
    world.told(table=table(2, default="shard-9"), bindings=elsewhere)
    [closed] = cluster.closed
    world.post(ev.SessionClosed(closed.session, ""))
    world.run(30)
    assert {row.key.cluster for row in world.results[-1].verdicts.rows()} == {"stays"}
    assert not [short for short in world.core.published.shortfalls if short.cluster == "c"]
    assert "c" in {view.name for view in world.core.read.clusters()}, "or the coordinator would not say where it went"
    world.core.validate()
    cluster.closed.clear()
    cluster.connect()
    assert [each.referral for each in cluster.closed] == ["10.0.0.9:7780"], "whoever comes back is sent there again"
    world.told(table=table(3, default=ME), bindings=(ClusterBinding("c", ME),))
    cluster.connect()
    cluster.send(cpu("c", 2), cpu("c", 5000, priority=7))
    world.run(30)
    assert {row.key.cluster for row in world.results[-1].verdicts.rows()} == {"c", "stays"}, (
        "moved back, it is served as before"
    )
    world.core.validate()


def test_a_machine_never_seen_before_is_nobodys_until_the_coordinator_vouches_for_it() -> None:
    world = zoned(with_coordinator=True)
    world.told(table=table(1, default=ME, vouches=True))
    world.run(5)
    assert not world.owned()
    asked = world.core.read.looked()[1]
    world.told(sure=asked)
    assert len(world.owned()) == 6
    world.provider.add("late", zone="a")
    world.run(60)
    assert "late" in world.core.state.fleet.machines and "late" not in world.owned()
    world.told(sure=asked)
    assert "late" not in world.owned(), "an answer to what was asked before it came"
    world.told(sure=world.core.read.looked()[1])
    assert "late" in world.owned()
    world.crash()
    world.run(5)
    assert len(world.owned()) == 7, "what was sure once is so after a restart, without the coordinator"


def test_a_machine_that_another_shard_remembers_is_not_owned_by_its_new_labels() -> None:
    world = zoned(with_coordinator=True)
    pinned = TableTransfer("pin/1", Phase.ADOPTED, "", "other", "p", ("a0",))
    world.told(table=table(1, default="other", domains=domains(a=ME), vouches=True, transfers=(pinned,)))
    world.run(5)
    world.told(sure=world.core.read.looked()[1])
    assert world.owned() == {"a1", "a2"}


def test_relabelled_machines_are_named_with_their_owner_until_the_table_names_them() -> None:
    world = zoned(with_coordinator=True)
    world.told(table=table(1, domains=domains(a=ME, b="other"), vouches=True))
    world.run(5)
    world.told(sure=world.core.read.looked()[1])
    reshaped(world.provider.units["a0"], zone="b")
    reshaped(world.provider.units["b0"], zone="a")
    world.run(60)
    assert sorted(world.core.read.relabelled()) == [("p", "a0", ME), ("p", "b0", "other")]
    pins = (
        TableTransfer("pin/1", Phase.ADOPTED, "", ME, "p", ("a0",)),
        TableTransfer("pin/2", Phase.ADOPTED, "", "other", "p", ("b0",)),
    )
    world.told(table=table(2, domains=domains(a=ME, b="other"), vouches=True, transfers=pins))
    assert not world.core.read.relabelled() and world.owned() == {"a0", "a1", "a2"}


def test_asked_to_look_a_shard_lists_anew_and_says_when_it_has() -> None:
    world = zoned(with_coordinator=True, reconcile_interval=3600 * 10**9)
    world.told(table=table(1, default=ME, vouches=True))
    world.run(5)
    lists = world.provider.lists
    world.told(look=9)
    assert world.core.read.looked()[0] == 0
    world.run(5)
    assert world.core.read.looked()[0] == 9 and world.provider.lists == lists + 1


def test_a_shard_that_was_removed_and_is_back_asks_about_everything_again() -> None:
    world = zoned(with_coordinator=True)
    world.told(table=table(1, default=ME, vouches=True, generation=1))
    world.run(5)
    world.told(sure=world.core.read.looked()[1])
    assert len(world.owned()) == 6
    world.told(table=table(2, default=ME, vouches=True, generation=2))
    assert not world.owned()
    world.told(sure=world.core.read.looked()[1])
    assert len(world.owned()) == 6
