"""Who owns a topology domain, and how it changes hands without two shards acting or none.

A machine's owner is decided by the first ownership key for which its value is assigned, else by the default owner. So
any change of a domain takes machines from somebody: those who may act on it today are awaited, nobody new acts before
all of them have confirmed a table that says so; then the change is settled. Listings show the new owner at once. A
confirmation counts once the shard has answered every transfer it was asked for: it may have let go of such machines.
"""

from __future__ import annotations

from msgspec.structs import replace

from bigfleet.coordinator.core import commands as do
from bigfleet.coordinator.core.commands import Code, Refused
from bigfleet.coordinator.core.records import Domain, Shard, Withdrawn
from bigfleet.coordinator.core.registry import registered
from bigfleet.coordinator.core.tables import Tables

DEFAULT_KEYS = ("topology.bigfleet/rack", "topology.kubernetes.io/zone")


def ownership_keys(tables: Tables) -> tuple[str, ...]:
    return tables.meta.keys or DEFAULT_KEYS


def assign(tables: Tables, command: do.AssignDomain) -> None:
    _require_names(command.key, command.value)
    shard = registered(tables, command.shard)
    domain = tables.domains.get((command.key, command.value))
    if domain is not None and domain.holder == shard.generation:
        return
    if domain is not None and domain.holder:
        raise Refused(
            Code.EXISTS,
            f"coordinator: domain already assigned to another shard: {domain.text} currently on "
            f"{tables.generations[domain.holder].id}, asked {command.shard}",
        )
    _give(tables, command.key, command.value, shard)


def unassign(tables: Tables, command: do.UnassignDomain) -> None:
    domain = tables.domains.get((command.key, command.value))
    if domain is not None and domain.holder:
        _give(tables, command.key, command.value, None)


def move(tables: Tables, command: do.MoveDomain) -> str:
    """Returns the shard it was assigned to; empty when nobody owned it."""
    _require_names(command.key, command.value)
    shard = registered(tables, command.shard)
    domain = tables.domains.get((command.key, command.value))
    before = tables.generations[domain.holder].id if domain is not None and domain.holder else ""
    if domain is None or domain.holder != shard.generation:
        _give(tables, command.key, command.value, shard)
    return before


def settle(tables: Tables, command: do.SettleDomains) -> None:
    """End the waiting of domains that are still at the revision that was confirmed."""
    changed = False
    for key, value, revision in command.domains:
        domain = tables.domains.get((key, value))
        if domain is None or domain.revision != revision or not domain.awaiting:
            continue
        changed = True
        if domain.holder:
            tables.put(replace(domain, awaiting=(), kept=False))
        else:
            tables.drop(domain)
    if changed:
        tables.touch_fleet()


def forget_withdrawn(tables: Tables, command: do.ForgetWithdrawn) -> None:
    shard = tables.shards.get(command.shard)
    if shard is None:
        return
    row = tables.withdrawn.get((shard.generation, command.key, command.value))
    if row is not None and row.revision == command.revision:
        tables.drop(row)


def set_keys(tables: Tables, command: do.SetKeys) -> None:
    if not command.keys or len(set(command.keys)) != len(command.keys) or not all(command.keys):
        raise Refused(
            Code.INVALID, f"coordinator: ownership keys are {list(command.keys)}; distinct label keys are accepted"
        )
    if command.keys == ownership_keys(tables):
        return
    if tables.domains:
        raise Refused(
            Code.CONFLICT,
            f"coordinator: ownership keys are {list(ownership_keys(tables))} and domains are assigned by them; "
            "unassign every domain before changing them",
        )
    tables.put(replace(tables.meta, keys=command.keys))
    tables.touch_fleet()


def acting(tables: Tables, key: str, value: str) -> tuple[int, ...]:
    """Who may act on the machines of a domain today."""
    domain = tables.domains.get((key, value))
    if domain is None:
        return _fallback(tables, key)
    awaited = tables.awaited(domain)
    if not awaited:
        return (domain.holder,)
    return (*awaited, domain.holder) if domain.kept and domain.holder else awaited


def _fallback(tables: Tables, key: str) -> tuple[int, ...]:
    """Who may own machines of an unassigned domain: owners by later keys, and the default owner.

    Shards that obey no tables are not waited for: they own all they see until told otherwise, as they always did.
    """
    keys = ownership_keys(tables)
    if key not in keys:
        return ()
    claiming = {each for later in keys[keys.index(key) + 1 :] for each in tables.claims.get(later, ())}
    if (default := tables.default) is not None:
        claiming.add(default.generation)
    return tuple(sorted(each for each in claiming if each in tables.generations and tables.generations[each].tables))


def _give(tables: Tables, key: str, value: str, shard: Shard | None) -> None:
    generation = shard.generation if shard is not None else 0
    able = acting(tables, key, value)
    awaiting = tuple(each for each in able if each != generation)
    before = tables.domains.get((key, value))
    if before is not None and before.holder and not tables.generations[before.holder].tables:
        # It obeys instructions only, so it must be told to give the domain up.
        tables.put(Withdrawn(before.holder, key, value, tables.next))
    taken_back = tables.withdrawn.get((generation, key, value))
    if taken_back is not None:
        tables.drop(taken_back)
    tables.put(Domain(key, value, generation, tables.next, awaiting, kept=generation in able))
    tables.touch_fleet()


def _require_names(key: str, value: str) -> None:
    if not key or not value:
        raise Refused(Code.INVALID, f"coordinator: domain {key!r}={value!r} needs a key and a value")
