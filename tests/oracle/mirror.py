"""The mirror, slow and obvious: every question is answered by looking at everything, one pod at a time.

Written from docs/operator-core.md; shares no matching, counting or placing with the product, only the facts it is told.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from bigfleet.operator.core.mirror.facts import BudgetSeen, NodeSeen, Origin, PodSeen, PodShape, PodTerm, RequestSeen

Placed = tuple[str, PodShape]  # (node, shape)


@dataclass
class World:
    """A cluster as it is."""

    nodes: dict[str, NodeSeen] = field(default_factory=dict)
    pods: dict[str, PodSeen] = field(default_factory=dict)
    requests: dict[str, RequestSeen] = field(default_factory=dict)
    budgets: dict[str, BudgetSeen] = field(default_factory=dict)
    draining: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    # Nodes that were there and are not any more.
    gone: dict[str, NodeSeen] = field(default_factory=dict)
    # The instant, and how long a pod waits before it may open a closing node (0: not at all).
    now: int = 0
    patience: int = 0


@dataclass
class Answer:
    rows: dict[tuple[str, str, str], tuple[int, int, int]]
    empty: dict[str, bool]
    removable: dict[str, bool]
    reopen: set[str]


def answer(world: World) -> Answer:
    standing = [(pod.node, pod) for pod in world.pods.values() if pod.node in world.nodes and not waits(world, pod)]
    placed: list[Placed] = [(node, pod.shape) for node, pod in standing]
    leaving = [(node, pod.shape) for node, pod in standing if pod.terminating]
    trial = Trial(world, standing, placed, leaving)
    roomy, reopen = place_everything(world, trial)
    rows = count_rows(world, roomy)
    guests = trial.guests()
    ours = {node.machine: node for node in world.nodes.values() if node.machine}
    empty = {
        machine: node.name not in guests
        and not any(p.node == node.name and p.shape.origin is not Origin.DAEMON for p in world.pods.values())
        for machine, node in ours.items()
    }
    removable = {machine: could_go(world, trial, standing, node) for machine, node in ours.items()}
    return Answer(rows, empty, removable, reopen)


# --------------------------------------------------------------------------------------------------------- one question


def waits(world: World, pod: PodSeen) -> bool:
    if not pod.node:
        return not pod.terminating and pod.shape.origin is not Origin.DAEMON
    if pod.terminating or pod.shape.origin is not Origin.REPLICATED:
        return False
    return pod.node in world.gone or (pod.node in world.nodes and is_away(world, world.nodes[pod.node]))


def is_away(world: World, node: NodeSeen) -> bool:
    return bool(node.machine) and (node.machine in world.draining or node.machine in world.lost)


def usable(world: World, node: NodeSeen) -> bool:
    barred = node.cordoned or node.closing_since or node.kept_for
    return node.ready and not barred and not is_away(world, node)


def check_holds(check: tuple[str, str, tuple[str, ...]], labels: dict[str, str]) -> bool:
    key, operator, values = check
    if operator == "In":
        return labels.get(key) in values if key in labels else False
    if operator == "NotIn":
        return key not in labels or labels[key] not in values
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    if key not in labels or not labels[key].isdigit():
        return False
    return int(labels[key]) > int(values[0]) if operator == "Gt" else int(labels[key]) < int(values[0])


def labels_suit(shape: PodShape, node: NodeSeen) -> bool:
    labels = {**dict(node.labels), "metadata.name": node.name}
    return not shape.node_terms or any(all(check_holds(c, labels) for c in term) for term in shape.node_terms)


def tolerated(shape: PodShape, node: NodeSeen) -> bool:
    for taint in node.taints:
        if taint.effect == "PreferNoSchedule" or taint.key == "node.kubernetes.io/unschedulable":
            continue
        if not any(
            t.effect in ("", taint.effect)
            and t.key in ("", taint.key)
            and (t.operator == "Exists" or t.value == taint.value)
            for t in shape.tolerations
        ):
            return False
    return True


def selects(checks: tuple[tuple[str, str, tuple[str, ...]], ...], shape: PodShape) -> bool:
    return all(check_holds(check, dict(shape.labels)) for check in checks)


def term_selects(term: PodTerm, shape: PodShape) -> bool:
    in_reach = not term.namespaces or shape.namespace in term.namespaces
    return in_reach and selects(term.selector.checks, shape)


class Trial:
    """Pods where they are, and guests."""

    def __init__(
        self, world: World, standing: list[tuple[str, PodSeen]], placed: list[Placed], leaving: list[Placed]
    ) -> None:
        self.world = world
        self.standing = standing
        self.placed = list(placed)
        self.leaving = list(leaving)
        self._real = len(placed)

    def copy(self) -> Trial:
        made = Trial(self.world, self.standing, self.placed, self.leaving)
        made._real = self._real
        return made

    def guests(self) -> set[str]:
        return {node for node, _ in self.placed[self._real :]}

    def on(self, name: str) -> list[PodShape]:
        return [shape for node, shape in self.placed if node == name]

    def fits(self, shape: PodShape, node: NodeSeen) -> bool:
        here = self.on(node.name)
        for resource, amount in shape.requests.items():
            if sum(s.requests.get(resource) for s in here) + amount > node.allocatable.get(resource):
                return False
        pods = node.allocatable.get("pods")
        if pods and len(here) + 1 > pods:
            return False
        for port in shape.ports:
            for other in here:
                for held in other.ports:
                    if held[:2] == port[:2] and ("0.0.0.0" in (held.ip, port.ip) or held.ip == port.ip):
                        return False
        return labels_suit(shape, node) and tolerated(shape, node)

    def in_domain(self, key: str, node: NodeSeen) -> list[PodShape]:
        domain = dict(node.labels).get(key)
        nodes = self.world.nodes
        return [s for n, s in self.placed if domain is not None and dict(nodes[n].labels).get(key) == domain]

    def allows(self, shape: PodShape, node: NodeSeen) -> bool:
        if not self.fits(shape, node):
            return False
        for term in shape.anti_affinity:
            if any(term_selects(term, other) for other in self.in_domain(term.topology_key, node)):
                return False
        for name, other in self.placed:
            for term in other.anti_affinity:
                theirs = dict(self.world.nodes[name].labels).get(term.topology_key)
                mine = dict(node.labels).get(term.topology_key)
                if term_selects(term, shape) and mine is not None and mine == theirs:
                    return False
        return self._attracted(shape, node) and all(self._evenly(shape, spread, node) for spread in shape.spreads)

    def _attracted(self, shape: PodShape, node: NodeSeen) -> bool:
        if any(term.topology_key not in dict(node.labels) for term in shape.affinity):
            return False
        near = [
            any(term_selects(term, other) for other in self.in_domain(term.topology_key, node))
            for term in shape.affinity
        ]
        if all(near):
            return True
        nodes = self.world.nodes
        nobody = not any(
            term_selects(term, other) and term.topology_key in dict(nodes[n].labels)
            for term in shape.affinity
            for n, other in self.placed
        )
        return nobody and all(term_selects(term, shape) for term in shape.affinity)

    def _evenly(self, shape: PodShape, spread: object, node: NodeSeen) -> bool:
        key, skew, checks = spread.topology_key, max(1, spread.max_skew), spread.selector.checks  # type: ignore[attr-defined]
        if key not in dict(node.labels):
            return False
        counts: Counter[str] = Counter()
        for each in self.world.nodes.values():
            if key in dict(each.labels) and labels_suit(shape, each):
                counts[dict(each.labels)[key]] += 0
        left = list(self.leaving)
        for name, other in self.placed:
            if (name, other) in left:
                left.remove((name, other))
                continue
            labels = dict(self.world.nodes[name].labels)
            if key not in labels or not labels_suit(shape, self.world.nodes[name]):
                continue
            if other.namespace == shape.namespace and selects(checks, other):
                counts[labels[key]] += 1
        itself = selects(checks, shape)
        return counts[dict(node.labels)[key]] + itself - min(counts.values()) <= skew

    def order(self) -> list[NodeSeen]:
        """Nodes with pods from the least used on, then those without by name."""
        return sorted(self.world.nodes.values(), key=lambda node: (self._use(node), node.name))

    def _use(self, node: NodeSeen) -> tuple[bool, float]:
        here = [pod.shape for name, pod in self.standing if name == node.name]
        if all(shape.origin is Origin.DAEMON for shape in here):
            return True, 0.0
        names = ["nvidia.com/gpu"] if node.allocatable.get("nvidia.com/gpu") else ["cpu", "memory"]
        shares = []
        for name in names:
            total = node.allocatable.get(name)
            if total:
                shares.append(1 - (total - sum(shape.requests.get(name) for shape in here)) / total)
        return False, sum(shares) / len(shares) if shares else 0.0

    def place(self, shape: PodShape, *, within: tuple[str, str] | None = None, apart_from: str = "") -> bool:
        for node in self.order():
            if not usable(self.world, node) or node.name == apart_from:
                continue
            if within is not None and dict(node.labels).get(within[0]) != within[1]:
                continue
            if apart_from and within is None and self._goes_beside_devices(shape, self.world.nodes[apart_from], node):
                continue
            if self.allows(shape, node):
                self.placed.append((node.name, shape))
                return True
        return False

    def _goes_beside_devices(self, shape: PodShape, leaves: NodeSeen, node: NodeSeen) -> bool:
        """It asks for nothing out of the ordinary, leaves a node without devices, and this one has some."""
        ordinary = {"cpu", "memory", "pods", "ephemeral-storage"}
        if set(shape.requests.names()) - ordinary or _has_devices(leaves):
            return False
        return _has_devices(node)

    def place_gang(self, shapes: list[PodShape], home: str | None, apart_from: str = "") -> bool:
        same = shapes[0].profile.same
        assert same is not None
        domains = {dict(n.labels)[same.key] for n in self.world.nodes.values() if same.key in dict(n.labels)}
        for domain in sorted(domains) if home is None else [home]:
            if same.values and domain not in same.values:
                continue
            before = list(self.placed)
            if all(self.place(shape, within=(same.key, domain), apart_from=apart_from) for shape in shapes):
                return True
            self.placed = before
        return False


# ------------------------------------------------------------------------------------------------------- all questions


def rank(shape: PodShape) -> tuple[int, int, bool, int, int]:
    amounts = dict(shape.requests.items())
    cpu, memory = amounts.pop("cpu", 0), amounts.pop("memory", 0)
    return -shape.profile.priority, -sum(amounts.values()), not wants_a_node_each(shape), -cpu, -memory


def wants_a_node_each(shape: PodShape) -> bool:
    """Whether no two such pods can share a node."""
    if shape.ports:
        return True
    return any(t.topology_key == "kubernetes.io/hostname" and term_selects(t, shape) for t in shape.anti_affinity)


def home_of(world: World, group: str) -> str | None:
    where: Counter[str] = Counter()
    for pod in world.pods.values():
        if pod.shape.group == group and pod.node in world.nodes and not waits(world, pod):
            same = pod.shape.profile.same
            domain = dict(world.nodes[pod.node].labels).get(same.key) if same else None
            if domain is not None:
                where[domain] += 1
    return min(where, key=lambda domain: (-where[domain], domain)) if where else None


def place_everything(world: World, trial: Trial) -> tuple[set[str], set[str]]:
    """Uids of pods and (name, n) of placeholders with room; machines to open again."""
    roomy: set[str] = set()
    waiting = sorted(
        (pod for pod in world.pods.values() if waits(world, pod)), key=lambda p: (rank(p.shape), p.since, p.uid)
    )
    for pod in waiting:
        node = world.nodes.get(pod.nominated)
        if node is not None and usable(world, node):
            trial.placed.append((node.name, pod.shape))
            roomy.add(pod.uid)
    left = [pod for pod in waiting if pod.uid not in roomy]
    done: set[str] = set()
    short = []
    for pod in left:
        group = pod.shape.group
        if group:
            if group in done:
                continue
            done.add(group)
            gang = [each for each in left if each.shape.group == group]
            if trial.place_gang([each.shape for each in gang], home_of(world, group)):
                roomy.update(each.uid for each in gang)
        elif trial.place(pod.shape):
            roomy.add(pod.uid)
        else:
            short.append(pod)
    reopen = set()
    for pod in short:
        if world.patience and world.now - pod.since < world.patience and is_counted(world, pod):
            continue
        for node in sorted(world.nodes.values(), key=lambda node: node.name):
            open_again = node.closing_since and node.ready and not is_away(world, node)
            if open_again and trial.allows(pod.shape, node):
                trial.placed.append((node.name, pod.shape))
                roomy.add(pod.uid)
                if node.machine:
                    reopen.add(node.machine)
                break
    place_placeholders(world, trial, roomy)
    return roomy, reopen


def place_placeholders(world: World, trial: Trial, roomy: set[str]) -> None:
    units = [
        (request, number)
        for request in world.requests.values()
        for number in range(max(0, request.units - len(linked(world, request))))
    ]
    units.sort(key=lambda each: (rank(each[0].shape), each[0].name, each[1]))
    done: set[str] = set()
    for request, number in units:
        group = request.shape.group
        if not group:
            if trial.place(request.shape):
                roomy.add(f"{request.name}#{number}")
        elif f"{group} {rank(request.shape)}" not in done:
            done.add(f"{group} {rank(request.shape)}")
            gang = [each for each in units if each[0].shape == request.shape]
            if trial.place_gang([each[0].shape for each in gang], home_of(world, group)):
                roomy.update(f"{each.name}#{n}" for each, n in gang)


def linked(world: World, request: RequestSeen) -> list[PodSeen]:
    return sorted((pod for pod in world.pods.values() if pod.request == request.name), key=lambda pod: pod.uid)


def is_counted(world: World, pod: PodSeen) -> bool:
    """Whether the shard hears of it."""
    request = world.requests.get(pod.request)
    return request is not None and pod in linked(world, request)[: max(0, request.units)]


def count_rows(world: World, roomy: set[str]) -> dict[tuple[str, str, str], tuple[int, int, int]]:
    rows: dict[tuple[str, str, str], tuple[int, int, int]] = {}
    for request in world.requests.values():
        if request.units <= 0:
            continue
        pods = linked(world, request)[: request.units]
        running = sum(1 for pod in pods if pod.node and not waits(world, pod))
        stranded = sum(1 for pod in pods if waits(world, pod) and pod.uid not in roomy)
        free = request.units - len(pods)
        stranded += sum(1 for number in range(free) if f"{request.name}#{number}" not in roomy)
        key = (request.shape.profile.fingerprint, request.shape.group, request.shape.requests.canonical)
        before = rows.get(key, (0, 0, 0))
        rows[key] = (before[0] + request.units, before[1] + running, before[2] + stranded)
    return rows


def could_go(world: World, trial: Trial, standing: list[tuple[str, PodSeen]], node: NodeSeen) -> bool:
    here = [pod for name, pod in standing if name == node.name and pod.shape.origin is not Origin.DAEMON]
    if not here or not node.ready or is_away(world, node) or node.name in trial.guests():
        return False
    if any(must_stay(world, pod.shape) for pod in here):
        return False
    trying = trial.copy()
    movers = [pod.shape for pod in here if not pod.terminating and pod.shape.origin is Origin.REPLICATED]
    for shape in movers:
        trying.placed.remove((node.name, shape))
        trying._real -= 1
    ordered = sorted(movers, key=lambda shape: (not is_picky(shape), rank(shape)))
    done: set[str] = set()
    for shape in ordered:
        if not shape.group:
            if not trying.place(shape, apart_from=node.name):
                return False
        elif f"{shape.group} {rank(shape)}" not in done:
            done.add(f"{shape.group} {rank(shape)}")
            mine = [each for each in ordered if each == shape]
            members = [pod for _, pod in standing if pod.shape.group == shape.group and _has_domain(world, pod)]
            alone = len(members) == len(mine)
            in_domain = shape.profile.same is not None and shape.profile.same.key in dict(node.labels)
            home = None if alone or not in_domain else home_of(world, shape.group)
            if not trying.place_gang(mine, home, apart_from=node.name):
                return False
    return True


def _has_devices(node: NodeSeen) -> bool:
    ordinary = {"cpu", "memory", "pods", "ephemeral-storage"}
    return any(name not in ordinary and not name.startswith("hugepages-") for name in node.allocatable.names())


def is_picky(shape: PodShape) -> bool:
    return any((shape.ports, shape.affinity, shape.anti_affinity, shape.spreads, shape.group))


def _has_domain(world: World, pod: PodSeen) -> bool:
    same = pod.shape.profile.same
    return same is not None and same.key in dict(world.nodes[pod.node].labels)


def must_stay(world: World, shape: PodShape) -> bool:
    if shape.pinned or shape.origin is Origin.BARE:
        return True
    if 27 in (shape.profile.interruption_bucket, shape.profile.reclamation_bucket):
        return True
    return any(
        budget.allowed <= 0 and budget.namespace == shape.namespace and selects(budget.selector.checks, shape)
        for budget in world.budgets.values()
    )
