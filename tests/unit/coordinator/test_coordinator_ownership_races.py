"""Races between domains and transfers that random histories found, each replayed by hand."""

from __future__ import annotations

from typing import Any

from bigfleet.coordinator.core import commands as do
from bigfleet.coordinator.core.commands import Refused
from bigfleet.coordinator.core.leader import Leader
from bigfleet.coordinator.core.policy import Policy
from bigfleet.coordinator.core.records import Phase, Selector, Transfer
from bigfleet.coordinator.core.reports import TABLES, TRANSFERS, Ack, Outcome, Report
from bigfleet.coordinator.core.state import State

RACK = "topology.bigfleet/rack"


class Told:
    """A leader over three shards; `hear` applies what follows from a report."""

    def __init__(self) -> None:
        self.leader = Leader(State(), 1, Policy())
        self.cycles = dict.fromkeys(("s0", "s1", "s2"), 0)
        for name in self.cycles:
            self.leader.state.apply(do.AddShard(name, "", 1, True))
            self.hear(name)

    def apply(self, *commands: do.Command) -> None:
        for command in commands:
            self.leader.state.apply(command)

    def hear(self, name: str, version: int | None = None, *acks: Ack) -> None:
        self.cycles[name] += 1
        tables = self.leader.state.tables
        held = tables.version(tables.shards[name]) if version is None else version
        report = Report(
            name, self.cycles[name], 1, version=held, capabilities=frozenset({TABLES, TRANSFERS}), acks=acks
        )
        _, commands = self.leader.hear(report, 10)
        self.apply(*commands)

    def generation(self, name: str) -> int:
        return self.leader.state.tables.shards[name].generation

    def domain(self, value: str = "r") -> Any:
        return self.leader.state.tables.domains[RACK, value]

    def propose(self, donor: str, recipient: str) -> None:
        wanted = Transfer("t", Phase.PROPOSED, self.generation(donor), self.generation(recipient))
        self.apply(do.Propose(_asking(wanted)))


def _asking(transfer: Transfer) -> Transfer:
    fields = {name: getattr(transfer, name) for name in transfer.__struct_fields__}
    return Transfer(**{**fields, "selector": Selector("kind", "zone", 1), "deadline": 10**12})


def test_a_domain_given_twice_in_a_row_still_waits_for_its_first_new_owner() -> None:
    told = Told()
    told.apply(do.AssignDomain("topology.kubernetes.io/zone", "z", "s2"))
    told.hear("s0")
    assert not told.leader.state.tables.domains["topology.kubernetes.io/zone", "z"].awaiting
    # Nobody owns the rack: the default owner s0 and the zone's owner s2 may both act on machines of it.
    told.apply(do.AssignDomain(RACK, "r", "s0"))
    told.apply(do.MoveDomain(RACK, "r", "s2"))
    assert told.domain().awaiting == (told.generation("s0"),), "s0 acted on it before it was given to s0"


def test_a_domain_is_not_settled_while_its_old_owner_may_have_let_machines_of_it_go() -> None:
    told = Told()
    told.propose("s0", "s1")
    told.apply(do.AssignDomain(RACK, "r", "s2"))
    # s0 has released m to the transfer under its old table; that answer is on its way when it confirms the new one.
    told.hear("s0")
    assert told.domain().awaiting
    told.hear("s0", None, Ack("transfer/t", Outcome.ACCEPTED, "", ("m",)))
    assert told.leader.state.tables.transfers["t"].phase is Phase.RELEASED
    told.hear("s0")
    assert not told.domain().awaiting


def test_a_shard_whose_domains_change_hands_is_asked_for_nothing() -> None:
    told = Told()
    told.apply(do.AssignDomain(RACK, "r", "s2"))
    try:
        told.propose("s0", "s1")
    except Refused as refusal:
        assert "changing hands" in str(refusal)
    else:
        raise AssertionError("s0 must confirm first")
    told.hear("s0")
    told.propose("s0", "s1")


def test_an_answer_after_the_transfer_was_called_off_changes_nothing() -> None:
    told = Told()
    told.propose("s0", "s1")
    told.apply(do.CallOff("t"))
    told.hear("s0", None, Ack("transfer/t", Outcome.ACCEPTED, "", ("m",)))
    assert not told.leader.state.tables.transfers and not told.leader.state.tables.moved


def test_a_failed_instruction_comes_again_within_bounds_and_is_then_called_off() -> None:
    told = Told()
    told.propose("s0", "s1")
    shard = told.leader.state.tables.shards["s0"]
    for attempt in range(Policy().attempts):
        assert told.leader.state.tables.transfers, f"given up after {attempt} attempts"
        assert told.leader.waiting(shard, 2**62), "asked again once it has rested"
        told.hear("s0", None, Ack("transfer/t", Outcome.FAILED, "busy"))
        assert not told.leader.waiting(shard, 11), "rests after a failure"
    assert not told.leader.state.tables.transfers


def test_a_new_leader_repeats_what_the_old_one_had_asked() -> None:
    told = Told()
    told.propose("s0", "s1")
    successor = Leader(State(told.leader.state.tables.rows()), 2, Policy())
    shard = successor.state.tables.shards["s0"]
    assert [each.id for _, each in successor.waiting(shard, 0)] == ["transfer/t"]
