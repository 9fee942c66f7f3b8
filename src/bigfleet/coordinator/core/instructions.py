"""What shards are asked to do, and what becomes of their answers.

Most of it is read off the state: a proposed transfer is an instruction to its donor until it is released or called
off, so a new leader repeats it without having been told. Only drains and the assignments of shards without tables are
remembered here. Failed instructions rest and come again, within bounds.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from bigfleet.coordinator.core.planner import Drain
from bigfleet.coordinator.core.policy import Policy
from bigfleet.coordinator.core.records import Domain, Phase, Shard, Transfer, Withdrawn
from bigfleet.coordinator.core.tables import Tables

TRANSFER = "transfer/"
ASSIGN = "assign/"
WITHDRAW = "withdraw/"
DRAIN = "drain/"
# Of one report's answer: a shard that was given 100,000 domains learns them over several.
MOST_ASSIGNMENTS = 1000


class Payload(StrEnum):
    """What the instruction says; the names are those of the wire."""

    ASSIGN = "assign_domain"
    UNASSIGN = "unassign_domain"
    REASSIGN = "reassign_speculative"
    DRAIN = "cross_shard_drain"
    TRANSFER = "transfer_ownership"


class Instruction(Struct, frozen=True):
    """One entry of an answer, before it is given a term and a sequence number."""

    id: str
    payload: Payload
    subject: Domain | Withdrawn | Transfer | Drain


class Retry(Struct):
    """How an instruction that failed stands."""

    attempts: int = 0
    due: int = 0


class Instructions:
    """What each shard has still to do."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._drains: dict[int, dict[str, Drain]] = {}
        self._told: dict[int, dict[tuple[str, str], int]] = {}
        self._retries: dict[tuple[int, str], Retry] = {}
        self._sequences: dict[tuple[int, str], int] = {}
        self._sequence = 0

    def waiting(self, tables: Tables, shard: Shard, now: int) -> list[tuple[int, Instruction]]:
        """(sequence number, instruction) of everything due, in ascending order."""
        due = [each for each in self._all(tables, shard) if self._due(shard.generation, each.id, now)]
        numbered = [(self._number(shard.generation, each.id), each) for each in due]
        return sorted(numbered, key=lambda each: each[0])

    def drain(self, drain: Drain) -> None:
        self._drains.setdefault(drain.donor, {}).setdefault(drain.id, drain)

    def drains(self) -> list[Drain]:
        return [drain for drains in self._drains.values() for drain in drains.values()]

    def drain_asked(self, generation: int, name: str) -> Drain | None:
        return self._drains.get(generation, {}).get(name)

    def done(self, generation: int, name: str) -> None:
        """It needs no more telling."""
        self._drains.get(generation, {}).pop(name, None)
        self._retries.pop((generation, name), None)
        self._sequences.pop((generation, name), None)

    def told(self, generation: int, domain: Domain) -> None:
        self._told.setdefault(generation, {})[domain.topology_key, domain.value] = domain.revision

    def failed(self, generation: int, name: str, now: int, *, soon: bool = False) -> bool:
        """Let it rest, longer each time unless the answer is expected `soon`; False when it has failed too often."""
        retry = self._retries.setdefault((generation, name), Retry())
        retry.attempts += 1
        longer = 0 if soon else min(retry.attempts - 1, 16)
        retry.due = now + min(self._policy.retry << longer, self._policy.retry_max)
        return retry.attempts < self._policy.attempts

    def restarted(self, generation: int) -> None:
        """A shard without tables forgets its domains with its process."""
        self._told.pop(generation, None)

    def forget(self, generation: int) -> None:
        """The shard is gone."""
        self._drains.pop(generation, None)
        self._told.pop(generation, None)
        for known in (self._retries, self._sequences):
            for key in [key for key in known if key[0] == generation]:
                del known[key]

    def prune(self, tables: Tables) -> None:
        """Forget the numbers of transfers that ended without an answer."""
        known = {TRANSFER + name for name in tables.transfers}
        for index in (self._retries, self._sequences):
            for key in [key for key in index if key[1].startswith(TRANSFER) and key[1] not in known]:
                del index[key]

    def _all(self, tables: Tables, shard: Shard) -> list[Instruction]:
        found = [
            Instruction(TRANSFER + each.id, Payload.REASSIGN if each.speculative else Payload.TRANSFER, each)
            for each in (tables.transfers[name] for name in sorted(tables.open.get(shard.generation, ())))
            if each.phase is Phase.PROPOSED and each.donor == shard.generation
        ]
        found += [
            Instruction(name, Payload.DRAIN, drain) for name, drain in self._drains.get(shard.generation, {}).items()
        ]
        if not shard.tables:
            found += self._assignments(tables, shard.generation)
        return found

    def _assignments(self, tables: Tables, generation: int) -> list[Instruction]:
        """One by one, for a shard that knows no tables."""
        found = [
            Instruction(f"{WITHDRAW}{row.revision}", Payload.UNASSIGN, row)
            for row in tables.withdrawn.values()
            if row.holder == generation
        ]
        told = self._told.get(generation, {})
        owned = tables.owned.get(generation, ())
        if len(told) < len(owned) or any(told.get(place) != tables.domains[place].revision for place in owned):
            for place in sorted(owned):
                domain = tables.domains[place]
                if told.get(place) != domain.revision and not tables.awaited(domain):
                    found.append(Instruction(f"{ASSIGN}{domain.revision}", Payload.ASSIGN, domain))
                if len(found) >= MOST_ASSIGNMENTS:
                    break
        return found

    def _due(self, generation: int, name: str, now: int) -> bool:
        retry = self._retries.get((generation, name))
        return retry is None or retry.due <= now

    def _number(self, generation: int, name: str) -> int:
        if (generation, name) not in self._sequences:
            self._sequence += 1
            self._sequences[generation, name] = self._sequence
        return self._sequences[generation, name]
