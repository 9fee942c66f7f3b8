"""One step for counted entries: makes the book, and lets Assign and Preempt call turns in their order.

Owns no rule: it finds what a step has to look at, gives kernels room, and tells what came out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.batches import Conditions
from bigfleet.engine.catalog.odd import ODD
from bigfleet.engine.counted.acting import COMING, DRAINING, DROP, FINISH, LEFTOVERS, LOTS, SCARCE, SERVE, VICTIMS, act
from bigfleet.engine.counted.belief import doubt, no_choices
from bigfleet.engine.counted.book import (
    BUY,
    DROPPED,
    LOOSE,
    MOST_TOKENS,
    PAID_DRAINING,
    PAID_EMPTY,
    PAID_IDLE,
    PODS,
    PURCHASES,
    REOPEN,
    TOKENS,
    UNIVERSES,
    Backoffs,
    Blocks,
    Book,
    Kinds,
    Lots,
    PlacementRules,
    Portions,
    Purchases,
    Scratch,
    Turns,
    enlarged,
    made_with,
    zeros,
)
from bigfleet.engine.counted.closing import clear_parking, close_turns, find_short
from bigfleet.engine.counted.groups import group_blocks
from bigfleet.engine.counted.judging import SPARED
from bigfleet.engine.counted.kinds import kinds_of
from bigfleet.engine.counted.standing import seen_left
from bigfleet.engine.counted.supply import (
    draining_machines,
    find_coming,
    list_draining,
    make_blocks,
    make_lots,
    sort_machines,
)
from bigfleet.engine.counted.turns import Lacking, take_turns
from bigfleet.engine.counted.worth import price_units
from bigfleet.engine.decide.victims import Ranked, Victims, Weights
from bigfleet.engine.decide.world import World
from bigfleet.engine.demand.rows import GANG, NO_TIME, PARKED, PLAIN
from bigfleet.engine.fleet.cells import OWNER_IDLE, OWNER_SPECULATIVE
from bigfleet.engine.kernels.columns import grown
from bigfleet.engine.kernels.jit import I4
from bigfleet.engine.nodes.seen import recount
from bigfleet.engine.policy import Policy
from bigfleet.engine.results import NeedKey

if TYPE_CHECKING:
    from bigfleet.engine.catalog.catalog import Catalog
    from bigfleet.engine.catalog.published import Published
    from bigfleet.engine.demand.demand import Demand
    from bigfleet.engine.fleet.fleet import Fleet
    from bigfleet.engine.nodes.nodes import Nodes
    from bigfleet.engine.nodes.standing import Standing

_NONE = np.zeros(0, np.int32)


class CountedStep:
    """The turns of one step; `entries` are theirs, in order."""

    def __init__(self, lacking: Lacking, policy: Policy, now: int, victims: Victims, ranked: Ranked) -> None:
        placement = policy.placement
        self._victims, self._ranked, self._weights = victims, ranked, Weights(0.0, 0.0, 0.0, 0.0, 0.0)
        self.lacking = lacking
        self.entries = lacking.entries
        self.rules = PlacementRules(
            now, placement.open_remainders, placement.riders, placement.within, placement.paid_ratio,
            placement.reopen_ratio, placement.risk_limit, placement.second_pass_from,
        )  # fmt: skip
        self.book: Book
        self.portions = lacking.portions
        self.believed: dict[int, bool] = {}
        # Turns whose cluster may acquire at all; a gang that rests may not.
        self.hopes: NDArray[np.bool_] = np.zeros(len(lacking.entries), bool)
        # The first token of every set that nodes carry.
        self._chain_of: NDArray[np.int32] = zeros(1)
        self._turn_of: dict[int, int] | None = None
        # Some gang is hopeless: it will rest, or be tried again, a cycle from now at the earliest.
        self.hopeless = False
        self._taken_by: dict[int, tuple[int, int, int]] | None = None

    # ---- beginning -------------------------------------------------------------------------------------------------

    def open(
        self,
        world: Callable[[], World],
        catalog: Catalog,
        fleet: Fleet,
        demand: Demand,
        nodes: Nodes,
        policy: Policy,
        conditions: Conditions,
        standing: Standing,
        published: Published,
        fresh: NDArray[np.bool_],
        closing: NDArray[np.int32],
        empty: NDArray[np.int32],
    ) -> World:
        """Makes the book. `fresh` is by cluster; `closing` are machines tier (a) may reopen, `empty` those tier (d) may
        take."""
        w = world()
        t, q, uni, tokens = take_turns(w, self.lacking, demand, catalog)
        catalog.rank_domains()
        w = world()
        count, width, now = len(self.entries), w.rows.unit.shape[1], self.rules.now
        kinds = kinds_of(catalog, w, published, demand.descending)
        self.believed = self._believe(w, kinds, catalog, fleet, demand, nodes, policy)
        heard = np.zeros(len(w.c.start), np.uint8)
        heard[self.lacking.clusters] = [fresh[c] and self.believed[c] for c in self.lacking.clusters.tolist()]
        able = heard[t.cluster[:count]]
        self.hopes = (able != 0) & conditions.acquire
        resting = (w.e.kind[self.entries] == GANG) & ((w.e.flags[self.entries] & PARKED) != 0)
        awake = np.nonzero(resting & (able != 0))[0][: policy.placement.gangs_awake]
        w.e.flags[self.entries[awake]] &= ~PARKED & 0xFF
        resting[awake] = False
        t.able[:count] = able & ~resting
        t.may[:count] = t.able[:count] if conditions.acquire else 0
        chains, token, token_next, most, tokens_used = self._chains(nodes, q.token, tokens)
        self._chain_of = chains
        young = nodes.young
        draining = np.empty(max(1, draining_machines(w)), np.int32)
        free = int(w.owners.used[OWNER_IDLE]) + int(w.owners.used[OWNER_SPECULATIVE])
        blocks = len(closing) + len(empty) + len(draining) + free
        # At most one machine per unit; room nobody uses is never touched, and so costs nothing.
        bought = min(int(q.stranded[: self.portions].sum()), len(fleet.v.state))
        machines = len(young) + blocks + 2 * count + bought + 64
        lots = len(young) + 2 * count + 64
        size = max(lots, 256)
        domains = len(catalog.domains.text)
        b = Book(
            t=t, q=q, lots=made_with(Lots, lots, left=width),
            blocks=made_with(Blocks, blocks, spare=width),
            bought=made_with(Purchases, 2 * count + 16),
            kinds=kinds, shut=self._backoffs(catalog, fleet, w, standing),
            s=made_with(Scratch, size, left=width)._replace(
                block=zeros(max(size, blocks, free)), portion=zeros(self.rules.riders + 2),
                units=np.zeros(self.rules.riders + 2, np.int64), left=np.zeros((2, width), np.int64),
                count=np.zeros(domains, np.int64), seen=np.zeros(domains, np.int64),
                inside=np.zeros(domains, np.int64), dom=zeros(domains), head=zeros(domains),
            ),
            uni=uni, slots=fleet.v, members=fleet.cells.members.v, said=nodes.said,
            token=token, token_next=token_next,
            fill_portion=zeros(4 * count + self.rules.riders + 16),
            fill_n=np.zeros(4 * count + self.rules.riders + 16, np.int64),
            machine=zeros(machines), mark=np.zeros(len(fleet.v.state), np.uint8),
            most_left=np.zeros((len(w.c.start), width), np.int64),
            least_unit=least_units(t, q, self.portions, len(w.c.start)),
            remainders=np.full(len(w.c.start), -1, np.int32), opened=zeros(len(w.c.start)),
            worst=np.full(len(w.c.start), -1, np.int32), whole=np.full(len(w.c.start), -1, np.int32),
            con_first=np.zeros((1, 1), np.int32), con_last=np.zeros((1, 1), np.int32), con_group=zeros(1),
            group_first=zeros(1), group_last=zeros(1), group_block=zeros(1), group_scarce=zeros(1),
            group_class=zeros(1), alike=np.zeros(1, np.uint8), looked_at=np.zeros(1, np.int64),
            again=zeros(1), short=zeros(1), reopen=np.full(len(w.c.start), -1, np.int32), by_tier=zeros(8),
            dropped=zeros(bought), dropped_cell=zeros(bought),
            money=np.zeros(4), meta=np.zeros(32, np.int64),
        )  # fmt: skip
        b.meta[PODS], b.meta[LOOSE], b.meta[TOKENS], b.meta[MOST_TOKENS] = (
            catalog.resource("pods"), -1, tokens_used, most,
        )  # fmt: skip
        b.meta[UNIVERSES] = int((t.uni + t.unis)[:count].max(initial=0))
        served = np.zeros(len(w.c.start), np.uint8)
        served[self.lacking.clusters] = 1
        found, token_of, left = zeros(len(young)), zeros(len(young)), np.zeros((max(1, len(young)), width), np.int64)
        of_sums = self._texts_of_sums(w, catalog, fleet, demand, young)
        n = find_coming(
            w, b, nodes.r, young, len(young), served, of_sums, nodes.loads.tokens_of, now, found, token_of,
            left,
        )  # fmt: skip
        make_lots(w, b, found[:n], token_of[:n], left[:n], chains, self._owners(w, catalog, fleet, t, found[:n]))
        emptying, counts = np.empty_like(draining), np.zeros(2, np.int64)
        list_draining(w, b, nodes.r, now, draining, emptying, counts)
        drainings, emptyings = counts.tolist()
        sort_machines(w.ids, draining, drainings)
        sort_machines(w.ids, emptying, emptyings)
        mine = closing[served[fleet.v.cluster[closing]] != 0] if len(closing) else closing
        ordered = empty.copy()
        sort_machines(w.ids, ordered, len(ordered))
        make_blocks(
            w, b, nodes.r, mine, len(mine), nodes.loads.tokens_of, chains, draining, drainings, ordered, len(ordered),
            emptying, emptyings,
        )  # fmt: skip
        b = group_blocks(w, b, catalog.class_count, len(catalog.offers))
        price_units(w, b, catalog.class_count, self.portions, np.full(_table_size(self.portions), -1, np.int32))
        self.book = b
        self._run(w, COMING, count)
        self._act(w, SCARCE, 0, count)
        return w

    def _believe(
        self, w: World, kinds: Kinds, catalog: Catalog, fleet: Fleet, demand: Demand, nodes: Nodes, policy: Policy
    ) -> dict[int, bool]:
        which = self.lacking.clusters
        believed = np.ones(len(which), np.uint8)
        if policy.placement.doubt:
            single = np.zeros(len(w.rows.prof), np.uint8)
            for cluster in which.tolist():
                for row in demand.sparse(fleet.clusters[cluster]).tokens:
                    single[int(w.c.start[cluster]) + row] = 1
            recount(nodes.r, nodes.s, fleet.v, w.cells, w.k.price, nodes.seen)
            doubt(
                w, nodes.r, nodes.s, nodes.seen, fleet.v, kinds.alive, kinds.pods, catalog.class_count,
                catalog.resource("pods"), catalog.resource(ODD), policy.placement.risk_limit, single,
                no_choices(catalog.class_count), which, len(which), believed,
            )  # fmt: skip
        return dict(zip(which.tolist(), believed.astype(bool).tolist(), strict=True))

    def doubted(self) -> set[int]:
        """Clusters that say they lack units and are not believed (P19)."""
        return {cluster for cluster, believed in self.believed.items() if not believed}

    def _chains(
        self, nodes: Nodes, heads: I4, tokens: dict[int, frozenset[str]]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], int, int]:
        """Token chains by the set of a node's load, and of portions, with room for as many again; the most that one
        fill may add, and how many there are."""
        numbers: dict[str, int] = {}
        token: list[int] = []
        following: list[int] = []

        def chain(names: frozenset[str]) -> int:
            head = -1
            for name in sorted(names):
                token.append(numbers.setdefault(name, len(numbers)))
                following.append(head)
                head = len(token) - 1
            return head

        sets = nodes.loads.token_sets
        chains = np.array([chain(names) for names in sets], np.int32)
        for portion, names in tokens.items():
            heads[portion] = chain(names)
        most = max((len(names) for names in tokens.values()), default=0) * (self.rules.riders + 3)
        size = max(len(token), most, 16)
        made, after = np.zeros(2 * size, np.int32), np.zeros(2 * size, np.int32)
        made[: len(token)], after[: len(token)] = token, following
        return chains, made, after, most, len(token)

    def _backoffs(self, catalog: Catalog, fleet: Fleet, w: World, standing: Standing) -> Backoffs:
        found: list[tuple[int, int, int]] = []
        keys: dict[NeedKey, int] | None = None
        for (cluster, offer), each in standing.backoffs.items():
            if each.every:
                found.append((cluster, offer, -1))
                continue
            if keys is None:
                keys = self._keys(catalog, fleet, w)
            found += [(cluster, offer, keys[key]) for key in each.rows if key in keys]
        shut: Backoffs = made_with(Backoffs, len(found))
        shut.cluster[:] = -1
        for at, (cluster, offer, turn) in enumerate(found):
            shut.cluster[at], shut.offer[at], shut.turn[at] = cluster, offer, turn
        return shut

    def _keys(self, catalog: Catalog, fleet: Fleet, w: World) -> dict[NeedKey, int]:
        texts = catalog.texts.texts
        found = {}
        for turn, entry in enumerate(self.entries.tolist()):
            unit = ""
            if int(w.e.kind[entry]) != GANG:
                amounts = w.parts.unit[int(w.e.part[entry])]
                named = {catalog.resources[d]: int(amounts[d]) for d in np.nonzero(amounts)[0].tolist()}
                odd = catalog.odd.pairs(named.pop(ODD, 0))
                unit = ",".join(f"{name}={amount}" for name, amount in sorted((*named.items(), *odd)))
            key = NeedKey(
                fleet.clusters[int(w.e.cluster[entry])],
                texts[int(w.p.text[w.e.prof[entry]])],
                texts[int(w.e.group[entry])],
                unit,
            )
            found[key] = turn
        return found

    def _owners(
        self, w: World, catalog: Catalog, fleet: Fleet, t: Turns, machines: NDArray[np.int32]
    ) -> NDArray[np.int32]:
        """By machine the turn of the gang it was bought for, -1 where it was bought for none that lacks room."""
        own = np.full(len(machines), -1, np.int32)
        turns = np.nonzero((w.e.kind[self.entries] == GANG) & (w.e.group[self.entries] > 0))[0]
        if not len(turns) or not len(machines):
            return own
        entries, size = self.entries[turns], len(catalog.texts.texts)
        keys = (t.cluster[turns].astype(np.int64) * size + w.p.text[w.e.prof[entries]]) * size + w.e.group[entries]
        order = np.argsort(keys)
        pairs = catalog.stamps.stamp_pair[fleet.v.stamp[machines]]
        fingerprints, groups = catalog.stamps.pair_fingerprint[pairs], catalog.stamps.pair_group[pairs]
        mine = (fleet.v.cluster[machines].astype(np.int64) * size + fingerprints) * size + groups
        at = order[np.minimum(np.searchsorted(keys, mine, sorter=order), len(order) - 1)]
        found = (keys[at] == mine) & (groups > 0)
        own[found] = turns[at[found]]
        return own

    def _texts_of_sums(
        self, w: World, catalog: Catalog, fleet: Fleet, demand: Demand, young: NDArray[np.int32]
    ) -> NDArray[np.uint8]:
        """Fingerprints of sum rows in force, by text: machines being made for one of them are not anybody's."""
        marks = np.zeros(len(catalog.texts.texts), np.uint8)
        if len(young) and (fleet.v.cluster[young] < 0).any():
            for cluster in range(len(fleet.clusters)):
                if not w.c.counted[cluster] and w.c.rows[cluster]:
                    start = int(w.c.start[cluster])
                    marks[w.p.text[w.rows.prof[start : start + int(w.c.rows[cluster])]]] = 1
        return marks

    # ---- going on --------------------------------------------------------------------------------------------------

    def _act(self, w: World, what: int, first: int, last: int) -> int:
        return act(w, self.book, self._victims, self._ranked, self._weights, self.rules, what, first, last)

    def _run(self, w: World, what: int, last: int, first: int = 0) -> None:
        at = first
        while at < last:
            at = self._act(w, what, at, last)
            if at < last:
                self.book = enlarged(self.book)

    def serve(self, w: World, first: int, last: int) -> None:
        self._run(w, SERVE, last, first)

    def finish(self, w: World) -> None:
        """After the pass: what was left over, and what became superfluous."""
        count = len(self.entries)
        self._run(w, LEFTOVERS, count)
        b = self.book
        made = int(b.meta[PURCHASES])
        if made:
            turns, tiers = b.bought.turn[:made], b.bought.tier[:made]
            bought = (b.t.kind[turns] == PLAIN) & ((tiers == PAID_IDLE) | (tiers == BUY))
            which = np.nonzero(bought)[0]
            clusters = b.t.cluster[turns[which]]
            machines = np.bincount(clusters, weights=b.bought.n[which], minlength=1)
            many = machines[clusters] >= self.rules.second_pass_from
            which, clusters = which[many], clusters[many]
            # Cluster by cluster, the last purchase first.
            self.book = b._replace(again=which[np.lexsort((-which, clusters))].astype(np.int32))
            self._run(w, DROP, len(which))
        self._act(w, FINISH, 0, self.portions)

    def short(self) -> NDArray[np.int64]:
        """Turns that may preempt and lack something."""
        count = len(self.entries)
        lacking = np.empty(count, np.uint8)
        find_short(self.book, count, lacking)
        found = np.nonzero((lacking != 0) & (self.book.t.able[:count] != 0))[0]
        self.book = self.book._replace(short=found.astype(np.int32) if len(found) else zeros(1))
        return found

    def await_draining(self, w: World, v: Victims, first: int, last: int) -> None:
        """Of the turns that are short the `first .. last`."""
        self._victims = v
        self._run(w, DRAINING, last, first)

    def choose_victims(self, w: World, v: Victims, r: Ranked, weights: Weights, first: int, last: int) -> Victims:
        """Victims of the short turns `first .. last`; the column of takes may have grown."""
        self._victims, self._ranked, self._weights = v, r, weights
        at = first
        while at < last:
            at = self._act(w, VICTIMS, at, last)
            if at < last:
                self.book, self._victims = enlarged(self.book), more_takes(self._victims)
        return self._victims

    def has_lots(self, w: World, turn: int) -> bool:
        """Whether some lot would hold a unit of the turn, its domain aside."""
        return self._act(w, LOTS, turn, turn) > 0

    def seen_left(self, w: World, nodes: Nodes, entry: int, turn: int, left: NDArray[np.int64]) -> bool:
        """Adds what seen nodes have left for an entry; whether its tokens alone keep it from room there is (P42)."""
        q, tokens = int(self.book.t.first[turn]), self.book.q.token
        if int(w.e.kind[entry]) == GANG or int(tokens[q]) < 0:
            q = -1
        known = (nodes.loads.tokens_of, self._chain_of)
        barred = bool(seen_left(w, self.book, nodes.r, nodes.s, *known, entry, q, left))
        if q < 0 or barred:
            return barred
        mine, tokens[q] = int(tokens[q]), -1
        found = self.has_lots(w, turn)
        tokens[q] = mine
        return found

    # ---- what came out ---------------------------------------------------------------------------------------------

    @property
    def took(self) -> bool:
        """Whether anything was taken for anybody."""
        return bool(self.book.meta[PURCHASES])

    def taken(self) -> tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.int32]]:
        """What was taken for entries, in order: tier, machine and turn."""
        b = self.book
        made = int(b.meta[PURCHASES])
        n = b.bought.n[:made].astype(np.int64)
        ends = np.cumsum(n)
        places = np.arange(int(ends[-1]) if made else 0) + np.repeat(b.bought.first[:made] - (ends - n), n)
        return np.repeat(b.bought.tier[:made], n), b.machine[places], np.repeat(b.bought.turn[:made], n)

    def acquisitions(self) -> tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.int32]]:
        """What was taken, as actions: per turn reopened machines, empty ones of others, Idle ones, then purchases, each
        in the order taken. Draining machines are nobody's action."""
        tier, slot, turn = self.taken()
        rank = np.full(5, -1)
        rank[[REOPEN, PAID_EMPTY, PAID_IDLE, BUY]] = (0, 1, 2, 3)
        mine = rank[tier] >= 0
        if not mine.all():
            tier, turn, slot = tier[mine], turn[mine], slot[mine]
        places = turn.astype(np.int64) * 4 + rank[tier]
        if (places[1:] >= places[:-1]).all():
            return tier, slot, turn
        order = np.argsort(places, kind="stable")
        return tier[order], slot[order], turn[order]

    def busy(self) -> set[int]:
        """Machines that were reopened, or taken from other clusters."""
        return set(np.nonzero(self.book.mark & SPARED)[0].tolist())

    @property
    def turn_of(self) -> dict[int, int]:
        """Turns by entry."""
        if self._turn_of is None:
            self._turn_of = {entry: turn for turn, entry in enumerate(self.entries.tolist())}
        return self._turn_of

    @property
    def taken_by(self) -> dict[int, tuple[int, int, int]]:
        """By turn: machines taken in all, of them Idle ones and purchases."""
        if self._taken_by is None:
            b = self.book
            found: dict[int, tuple[int, int, int]] = {}
            made = int(b.meta[PURCHASES])
            for turn, tier, n in zip(
                *(c[:made].tolist() for c in (b.bought.turn, b.bought.tier, b.bought.n)), strict=True
            ):
                if tier != PAID_DRAINING:
                    had = found.get(turn, (0, 0, 0))
                    found[turn] = (had[0] + n, had[1] + n * (tier == PAID_IDLE), had[2] + n * (tier == BUY))
            self._taken_by = found
        return self._taken_by

    def close(self, w: World, clusters: int) -> NDArray[np.uint8]:
        """After Preempt: what every part lacks, and which gangs are hopeless (R3.8). Returns, by cluster, whether one
        of its turns lacks something."""
        count, b = len(self.entries), self.book
        close_turns(w, b, count)
        lacking = np.empty(count, np.uint8)
        find_short(b, count, lacking)
        made = int(b.meta[PURCHASES])
        mine = b.bought.tier[:made] != PAID_DRAINING
        took = np.bincount(b.bought.turn[:made][mine], weights=b.bought.n[:made][mine], minlength=count)
        gangs = self.hopes & (w.e.kind[self.entries] == GANG)
        stuck = np.nonzero(gangs & (lacking != 0) & (b.t.ok[:count] == 0) & (took[:count] == 0))[0]
        self.hopeless = bool(len(stuck))
        entries = self.entries[stuck]
        since = w.e.parked_since[entries].copy()
        clear_parking(w, clusters)
        w.e.parked_since[entries] = np.where(since == NO_TIME, self.rules.now, since)
        short = np.zeros(len(w.c.start), np.uint8)
        short[b.t.cluster[:count][lacking != 0]] = 1
        return short

    @property
    def dropped(self) -> NDArray[np.int32]:
        """Machines the second pass gave back and nobody took again."""
        b, count = self.book, int(self.book.meta[DROPPED])
        return b.dropped[:count][b.dropped_cell[:count] >= 0]


def least_units(t: Turns, q: Portions, portions: int, clusters: int) -> NDArray[np.int64]:
    """By cluster the least of each resource that a unit of a plain turn takes; where there is none, more than any."""
    found = np.full((clusters, q.unit.shape[1]), np.iinfo(np.int64).max, np.int64)
    plain = np.nonzero(t.kind[q.turn[:portions]] == PLAIN)[0]
    cluster = t.cluster[q.turn[plain]]
    order = np.argsort(cluster, kind="stable")
    which, first = np.unique(cluster[order], return_index=True)
    if len(which):
        found[which] = np.minimum.reduceat(q.unit[plain[order]], first, axis=0)
    return found


def _table_size(elements: int) -> int:
    """Room for a table of so many keys, a power of two."""
    return 1 << (2 * max(1, elements)).bit_length()


def runs(sums: NDArray[np.int64], turns: NDArray[np.int64]) -> Iterator[tuple[bool, int, int]]:
    """Stretches of entries of one kind in the order of service, given the ranks of both in their own order: whether
    they are turns, and the first and last of them."""
    both = np.concatenate((sums, turns), axis=1)
    order = np.lexsort(both[::-1])
    are_turns = order >= sums.shape[1]
    at = [0, 0]
    bounds = np.append(np.nonzero(np.diff(are_turns))[0] + 1, len(order))
    first = 0
    for last in bounds.tolist() if len(order) else ():
        kind = bool(are_turns[first])
        yield kind, at[kind], at[kind] + last - first
        at[kind] += last - first
        first = last


def more_takes(v: Victims) -> Victims:
    """Twice the room for what is taken from victims."""
    size = 2 * len(v.take_n)
    return v._replace(
        take_entry=grown(v.take_entry, size), take_block=grown(v.take_block, size),
        take_first=grown(v.take_first, size), take_n=grown(v.take_n, size),
    )  # fmt: skip


def in_order(ranks: NDArray[np.int64], sums: NDArray[np.int32], turns: NDArray[np.int32]) -> NDArray[np.int32]:
    """Entries of both kinds in the order of service, given their ranks behind each other."""
    return np.concatenate((sums, turns))[np.lexsort(ranks[::-1])]
