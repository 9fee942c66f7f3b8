"""Opening the book: everything counted entries may look at in a step, gathered once, before the first is served.

Owns who may take a turn at all (P3, P19) and how much room the columns begin with. What becomes of the turns is
`step`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.batches import Conditions
from bigfleet.engine.catalog.odd import ODD
from bigfleet.engine.counted.belief import doubt, no_choices
from bigfleet.engine.counted.book import (
    LOOSE,
    MOST_TOKENS,
    PODS,
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
    Universes,
    made_with,
    zeros,
)
from bigfleet.engine.counted.filling import REACH
from bigfleet.engine.counted.groups import group_blocks
from bigfleet.engine.counted.kinds import kinds_of
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
from bigfleet.engine.decide.need_names import Needs
from bigfleet.engine.decide.world import World
from bigfleet.engine.demand.rows import GANG, PARKED, PLAIN
from bigfleet.engine.fleet.cells import OWNER_IDLE, OWNER_SPECULATIVE
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


class Opened(NamedTuple):
    """The book, and who is in it."""

    w: World
    book: Book
    # By cluster whether what it says of its units is believed (P19).
    believed: dict[int, bool]
    # Turns whose cluster may acquire at all; a gang that rests may not.
    hopes: NDArray[np.bool_]
    # The first token of every set that nodes carry.
    chain_of: NDArray[np.int32]


class Offered(NamedTuple):
    """Machines that are somebody's and may change hands: tier (a) may reopen `closing`, tier (d) may take `empty`."""

    closing: NDArray[np.int32]
    empty: NDArray[np.int32]


class _Tokens(NamedTuple):
    """Chains of tokens: the head by the set of a node's load, the links with room for as many again, the most that one
    fill may add, and how many there are."""

    chain_of: NDArray[np.int32]
    token: NDArray[np.int32]
    after: NDArray[np.int32]
    most: int
    used: int


@dataclass(eq=False, slots=True)
class Opening:
    """Makes the book of the step that begins."""

    lacking: Lacking
    rules: PlacementRules
    catalog: Catalog
    fleet: Fleet
    demand: Demand
    nodes: Nodes

    def open(
        self,
        world: Callable[[], World],
        policy: Policy,
        conditions: Conditions,
        standing: Standing,
        published: Published,
        fresh: NDArray[np.bool_],
        offered: Offered,
    ) -> Opened:
        """`fresh` is by cluster. The world is asked for again where domains were added to it."""
        t, q, uni, tokens_of = take_turns(world(), self.lacking, self.demand, self.catalog)
        self.catalog.rank_domains()
        w = world()
        kinds = kinds_of(self.catalog, w, published, self.demand.descending)
        believed = self._believe(w, kinds, published.counts_for, policy)
        hopes = self._admit(w, t, fresh, believed, policy, conditions)
        tokens = self._chain_tokens(q, tokens_of)
        draining = np.empty(max(1, draining_machines(w)), np.int32)
        shut = self._backoffs(w, standing)
        b = self._empty_book(w, t, q, uni, kinds, shut, tokens, offered, len(draining))
        served = np.zeros(len(w.c.start), np.uint8)
        served[self.lacking.clusters] = 1
        self._list_coming(w, b, served, tokens)
        self._list_blocks(w, b, served, tokens, offered, draining)
        b = group_blocks(w, b, self.catalog.class_count, len(self.catalog.offers))
        table = np.full(_table_size(self.lacking.portions), -1, np.int32)
        price_units(w, b, self.catalog.class_count, self.lacking.portions, table)
        return Opened(w, b, believed, hopes, tokens.chain_of)

    # ---- who takes turns -------------------------------------------------------------------------------------------

    def _believe(self, w: World, kinds: Kinds, price: NDArray[np.int64], policy: Policy) -> dict[int, bool]:
        catalog, fleet, nodes, which = self.catalog, self.fleet, self.nodes, self.lacking.clusters
        believed = np.ones(len(which), np.uint8)
        if policy.placement.doubt:
            single = np.zeros(len(w.rows.prof), np.uint8)
            for cluster in which.tolist():
                for row in self.demand.sparse(fleet.clusters[cluster]).tokens:
                    single[int(w.c.start[cluster]) + row] = 1
            recount(nodes.r, nodes.s, fleet.v, w.cells, price, nodes.seen)
            doubt(
                w, nodes.r, nodes.s, nodes.seen, fleet.v, kinds.alive, kinds.pods, price, catalog.class_count,
                catalog.resource("pods"), catalog.resource(ODD), policy.placement.risk_limit, single,
                no_choices(catalog.class_count), which, len(which), believed,
            )  # fmt: skip
        return dict(zip(which.tolist(), believed.astype(bool).tolist(), strict=True))

    def _admit(
        self,
        w: World,
        t: Turns,
        fresh: NDArray[np.bool_],
        believed: dict[int, bool],
        policy: Policy,
        conditions: Conditions,
    ) -> NDArray[np.bool_]:
        """Which turns may take anything; some resting gangs are woken. Returns which of them may hope to acquire."""
        entries, count = self.lacking.entries, len(self.lacking.entries)
        heard = np.zeros(len(w.c.start), np.uint8)
        heard[self.lacking.clusters] = [fresh[c] and believed[c] for c in self.lacking.clusters.tolist()]
        able = heard[t.cluster[:count]]
        resting = (w.e.kind[entries] == GANG) & ((w.e.flags[entries] & PARKED) != 0)
        awake = np.nonzero(resting & (able != 0))[0][: policy.placement.gangs_awake]
        w.e.flags[entries[awake]] &= ~PARKED & 0xFF
        resting[awake] = False
        t.able[:count] = able & ~resting
        t.may[:count] = t.able[:count] if conditions.acquire else 0
        return (able != 0) & conditions.acquire

    def _chain_tokens(self, q: Portions, tokens: dict[int, frozenset[str]]) -> _Tokens:
        """Links the tokens of nodes' loads and of portions, which get their heads."""
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

        chains = np.array([chain(names) for names in self.nodes.loads.token_sets], np.int32)
        for portion, names in tokens.items():
            q.token[portion] = chain(names)
        most = max((len(names) for names in tokens.values()), default=0) * (REACH * self.rules.riders + 3)
        size = max(len(token), most, 16)
        made, after = np.zeros(2 * size, np.int32), np.zeros(2 * size, np.int32)
        made[: len(token)], after[: len(token)] = token, following
        return _Tokens(chains, made, after, most, len(token))

    def _backoffs(self, w: World, standing: Standing) -> Backoffs:
        """Kinds that are shut to clusters, or to single turns of them."""
        found: list[tuple[int, int, int]] = []
        keys: dict[NeedKey, int] | None = None
        for (cluster, offer), each in standing.backoffs.items():
            if each.every:
                found.append((cluster, offer, -1))
                continue
            if keys is None:
                keys = self._keys(w)
            found += [(cluster, offer, keys[key]) for key in each.rows if key in keys]
        shut: Backoffs = made_with(Backoffs, len(found))
        shut.cluster[:] = -1
        for at, (cluster, offer, turn) in enumerate(found):
            shut.cluster[at], shut.offer[at], shut.turn[at] = cluster, offer, turn
        return shut

    def _keys(self, w: World) -> dict[NeedKey, int]:
        """Turns by the keys of their needs."""
        needs = Needs.of_now(w, self.catalog, self.fleet.clusters)
        return {needs.entry_key(entry): turn for turn, entry in enumerate(self.lacking.entries.tolist())}

    # ---- what they may look at -------------------------------------------------------------------------------------

    def _empty_book(
        self,
        w: World,
        t: Turns,
        q: Portions,
        uni: Universes,
        kinds: Kinds,
        shut: Backoffs,
        tokens: _Tokens,
        offered: Offered,
        draining: int,
    ) -> Book:
        """Room for everything; room nobody uses is never touched, and so costs nothing."""
        fleet, catalog, riders = self.fleet, self.catalog, REACH * self.rules.riders
        count, clusters, width = len(self.lacking.entries), len(w.c.start), w.rows.unit.shape[1]
        young, domains = len(self.nodes.young), len(catalog.domains.text)
        free = int(w.owners.used[OWNER_IDLE]) + int(w.owners.used[OWNER_SPECULATIVE])
        blocks = len(offered.closing) + len(offered.empty) + draining + free
        # At most one machine per unit.
        bought = min(int(q.stranded[: self.lacking.portions].sum()), len(fleet.v.state))
        machines = young + blocks + 2 * count + bought + 64
        lots = young + 2 * count + 64
        size = max(lots, 256)
        b = Book(
            t=t, q=q, lots=made_with(Lots, lots, left=width),
            blocks=made_with(Blocks, blocks, spare=width),
            bought=made_with(Purchases, 2 * count + 16),
            kinds=kinds, shut=shut,
            s=made_with(Scratch, size, left=width)._replace(
                block=zeros(max(size, blocks, free)), portion=zeros(riders + 2), units=np.zeros(riders + 2, np.int64),
                rider=zeros(riders), able=zeros(riders), behind=zeros(self.rules.refills),
                left=np.zeros((2, width), np.int64),
                count=np.zeros(domains, np.int64), seen=np.zeros(domains, np.int64),
                inside=np.zeros(domains, np.int64), dom=zeros(domains), head=zeros(domains),
            ),
            uni=uni, slots=fleet.v, members=fleet.cells.members.v, said=self.nodes.said,
            token=tokens.token, token_next=tokens.after,
            fill_portion=zeros(4 * count + riders + 16),
            fill_n=np.zeros(4 * count + riders + 16, np.int64),
            machine=zeros(machines), mark=np.zeros(len(fleet.v.state), np.uint8),
            most_left=np.zeros((clusters, width), np.int64),
            least_unit=_least_units(t, q, self.lacking.portions, clusters),
            remainders=np.full(clusters, -1, np.int32), opened=zeros(clusters),
            worst=np.full(clusters, -1, np.int32), whole=np.full(clusters, -1, np.int32),
            con_first=np.zeros((1, 1), np.int32), con_last=np.zeros((1, 1), np.int32), con_group=zeros(1),
            group_first=zeros(1), group_last=zeros(1), group_block=zeros(1), group_scarce=zeros(1),
            group_class=zeros(1), alike=np.zeros(1, np.uint8), looked_at=np.zeros(1, np.int64),
            again=zeros(1), short=zeros(1), reopen=np.full(clusters, -1, np.int32), by_tier=zeros(8),
            dropped=zeros(bought), dropped_cell=zeros(bought),
            money=np.zeros(4), meta=np.zeros(32, np.int64),
        )  # fmt: skip
        b.meta[PODS], b.meta[LOOSE] = catalog.resource("pods"), -1
        b.meta[TOKENS], b.meta[MOST_TOKENS] = tokens.used, tokens.most
        b.meta[UNIVERSES] = int((t.uni + t.unis)[:count].max(initial=0))
        return b

    def _list_coming(self, w: World, b: Book, served: NDArray[np.uint8], tokens: _Tokens) -> None:
        """Lots of machines that come up, or are made, for the clusters that take turns."""
        nodes, young, width = self.nodes, self.nodes.young, w.rows.unit.shape[1]
        found, token_of, left = zeros(len(young)), zeros(len(young)), np.zeros((max(1, len(young)), width), np.int64)
        n = find_coming(
            w, b, nodes.r, young, len(young), served, self._texts_of_sums(w, young), nodes.loads.tokens_of,
            self.rules.now, found, token_of, left,
        )  # fmt: skip
        make_lots(w, b, found[:n], token_of[:n], left[:n], tokens.chain_of, self._owners(w, b.t, found[:n]))

    def _texts_of_sums(self, w: World, young: NDArray[np.int32]) -> NDArray[np.uint8]:
        """Fingerprints of sum rows in force, by text: machines being made for one of them are not anybody's."""
        fleet = self.fleet
        marks = np.zeros(len(self.catalog.texts.texts), np.uint8)
        if len(young) and (fleet.v.cluster[young] < 0).any():
            for cluster in range(len(fleet.clusters)):
                if not w.c.counted[cluster] and w.c.rows[cluster]:
                    start = int(w.c.start[cluster])
                    marks[w.p.text[w.rows.prof[start : start + int(w.c.rows[cluster])]]] = 1
        return marks

    def _owners(self, w: World, t: Turns, machines: NDArray[np.int32]) -> NDArray[np.int32]:
        """By machine the turn of the gang it was bought for, -1 where it was bought for none that lacks room."""
        catalog, fleet, mine = self.catalog, self.fleet, self.lacking.entries
        own = np.full(len(machines), -1, np.int32)
        turns = np.nonzero((w.e.kind[mine] == GANG) & (w.e.group[mine] > 0))[0]
        if not len(turns) or not len(machines):
            return own
        entries, size = mine[turns], len(catalog.texts.texts)
        keys = (t.cluster[turns].astype(np.int64) * size + w.p.text[w.e.prof[entries]]) * size + w.e.group[entries]
        order = np.argsort(keys)
        pairs = catalog.stamps.stamp_pair[fleet.v.stamp[machines]]
        fingerprints, groups = catalog.stamps.pair_fingerprint[pairs], catalog.stamps.pair_group[pairs]
        wanted = (fleet.v.cluster[machines].astype(np.int64) * size + fingerprints) * size + groups
        at = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(order) - 1)]
        found = (keys[at] == wanted) & (groups > 0)
        own[found] = turns[at[found]]
        return own

    def _list_blocks(
        self,
        w: World,
        b: Book,
        served: NDArray[np.uint8],
        tokens: _Tokens,
        offered: Offered,
        draining: NDArray[np.int32],
    ) -> None:
        """Blocks of machines that can be had: closing, draining, empty, and free ones."""
        nodes, closing = self.nodes, offered.closing
        emptying, counts = np.empty_like(draining), np.zeros(2, np.int64)
        list_draining(w, b, nodes.r, self.rules.now, draining, emptying, counts)
        drainings, emptyings = counts.tolist()
        sort_machines(w.ids, draining, drainings)
        sort_machines(w.ids, emptying, emptyings)
        mine = closing[served[self.fleet.v.cluster[closing]] != 0] if len(closing) else closing
        ordered = offered.empty.copy()
        sort_machines(w.ids, ordered, len(ordered))
        make_blocks(
            w, b, nodes.r, mine, len(mine), nodes.loads.tokens_of, tokens.chain_of, draining, drainings, ordered,
            len(ordered), emptying, emptyings,
        )  # fmt: skip


def _least_units(t: Turns, q: Portions, portions: int, clusters: int) -> NDArray[np.int64]:
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
