"""Random small clusters that go through every filter, and random ways to get there."""

from __future__ import annotations

import random

from bigfleet.model.names import HOSTNAME_LABEL, ZONE_LABEL
from bigfleet.model.profile import Profile
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import Resources
from bigfleet.model.taint import Taint, Toleration
from bigfleet.operator.core.mirror import facts as f
from bigfleet.operator.core.mirror.labels import LabelCheck, Selector, equal_to
from tests.oracle.mirror import World

RACK = "rack"
GPU = "nvidia.com/gpu"


def shapes(dice: random.Random, count: int = 7) -> list[f.PodShape]:
    """Shapes that all differ in rank, so that it is never a matter of taste who is placed first."""
    return [_shape(dice, number) for number in range(count)]


def _shape(dice: random.Random, number: int) -> f.PodShape:
    app = f"app-{dice.randrange(3)}"
    namespace = dice.choice(["default", "team"])
    own = Selector(equal_to({"app": app}))
    gang = dice.random() < 0.2
    requirements = [Requirement(RACK, Operator.SAME)] if gang else []
    amounts = {"cpu": 1000 * dice.randint(1, 4) + number, "memory": 1024 * dice.randint(1, 4)}
    if dice.random() < 0.15:
        amounts[GPU] = 1
    terms: list[tuple[LabelCheck, ...]] = []
    if dice.random() < 0.3:
        terms.append(equal_to({ZONE_LABEL: dice.choice("ab")}))
        if dice.random() < 0.3:
            terms.append((LabelCheck("size", "Gt", ("1",)),))
    if dice.random() < 0.1:
        terms.append((LabelCheck("metadata.name", "NotIn", ("n-1",)),))
    if gang:
        terms = [(*term, LabelCheck(RACK, "Exists")) for term in terms or [()]]
    key = dice.choice([HOSTNAME_LABEL, ZONE_LABEL])
    buckets = dice.choice([0, 1, 3]), dice.choice([0, 1, 4, 27] if dice.random() < 0.2 else [0, 1])
    return f.PodShape(
        namespace=namespace,
        requests=Resources(amounts),
        profile=Profile(requirements, (), dice.randint(0, 2), *buckets),
        group=f"gang-{dice.randrange(2)}" if gang else "",
        labels=(("app", app), ("tier", dice.choice("xy"))),
        node_terms=tuple(terms),
        tolerations=(Toleration("dedicated", "Exists"),) if dice.random() < 0.3 else (),
        ports=(f.HostPort("TCP", 80, dice.choice(["0.0.0.0", "10.0.0.1"])),) if dice.random() < 0.15 else (),
        affinity=(f.PodTerm(key, own, (namespace,)),) if dice.random() < 0.15 else (),
        anti_affinity=(f.PodTerm(key, own, dice.choice([(), (namespace,)])),) if dice.random() < 0.25 else (),
        spreads=(f.SpreadTerm(key, dice.randint(1, 2), own),) if dice.random() < 0.35 else (),
        origin=dice.choices(list(f.Origin), [12, 1, 1])[0],
        pinned=dice.random() < 0.05,
        service=dice.random() < 0.7,
    )


def node(dice: random.Random, name: str) -> f.NodeSeen:
    labels = {HOSTNAME_LABEL: name, "size": str(dice.randint(0, 3))}
    if dice.random() < 0.9:
        labels[ZONE_LABEL] = dice.choice("ab")
    if dice.random() < 0.8:
        labels[RACK] = dice.choice("pq")
    size = dice.choice([1, 1, 3])
    allocatable = {"cpu": size * 1000 * dice.randint(2, 10), "memory": size * 1024 * dice.randint(2, 10)}
    if dice.random() < 0.7:
        allocatable["pods"] = size * dice.randint(1, 6)
    if dice.random() < 0.3:
        allocatable[GPU] = dice.randint(1, 2)
    return f.NodeSeen(
        name,
        Resources(allocatable),
        tuple(sorted(labels.items())),
        taints=(Taint("dedicated", "", dice.choice(["NoSchedule", "PreferNoSchedule"])),)
        if dice.random() < 0.2
        else (),
        machine=f"m-{name}" if dice.random() < 0.8 else "",
        ready=dice.random() < 0.92,
        cordoned=dice.random() < 0.08,
        closing_since=5 if dice.random() < 0.1 else 0,
        kept_for=dice.choice(["reserved", "gang g"]) if dice.random() < 0.08 else "",
    )


def random_delta(dice: random.Random, world: World, known: list[f.PodShape], *, calm: bool = False) -> f.Delta:
    """Something happens; the world knows it already. In a calm world nearly all pods have found their node."""
    what = dice.random()
    if what < 0.14 or not world.nodes:
        return _some_node(dice, world)
    if what < 0.17:
        name = dice.choice(sorted(world.nodes))
        if any(pod.node == name for pod in world.pods.values()):
            world.gone[name] = world.nodes[name]
        _another_machine(world, world.nodes.pop(name))
        return f.NodeGone(name)
    if what < 0.20:
        name = f"b-{dice.randrange(2)}"
        if name in world.budgets and dice.random() < 0.4:
            del world.budgets[name]
            return f.BudgetGone(name)
        selector = Selector(equal_to({dice.choice(["app", "tier"]): dice.choice(["app-0", "app-1", "x"])}))
        budget = f.BudgetSeen(name, "default", selector, dice.randint(0, 1))
        world.budgets[name] = budget
        return budget
    if what < (0.22 if calm else 0.32):
        return _some_request(dice, world, known)
    if what < 0.48 and world.pods:
        uid = dice.choice(sorted(world.pods))
        del world.pods[uid]
        _forget_gone(world)
        return f.PodGone(uid)
    return _some_pod(dice, world, known, calm)


def _some_node(dice: random.Random, world: World) -> f.Delta:
    name = f"n-{dice.randrange(6)}"
    seen = node(dice, name)
    if name in world.nodes and dice.random() < 0.5:  # the same node in another condition
        before = world.nodes[name]
        seen = f.NodeSeen(
            name,
            before.allocatable,
            before.labels,
            before.taints,
            before.machine,
            seen.ready,
            seen.cordoned,
            seen.closing_since,
            seen.kept_for,
        )
    if name in world.nodes and world.nodes[name].machine != seen.machine:
        _another_machine(world, world.nodes[name])
    world.nodes[name] = seen
    world.gone.pop(name, None)
    return seen


def _another_machine(world: World, gone: f.NodeSeen) -> None:
    world.draining.discard(gone.machine)
    world.lost.discard(gone.machine)


def _some_request(dice: random.Random, world: World, known: list[f.PodShape]) -> f.Delta:
    name = f"r-{dice.randrange(8)}"
    if name in world.requests and dice.random() < 0.4:
        del world.requests[name]
        return f.RequestGone(name)
    replicated = [shape for shape in known if shape.origin is not f.Origin.DAEMON]
    request = f.RequestSeen(name, dice.choice(replicated or known), dice.choice([1, 1, 1, 3]))
    world.requests[name] = request
    return request


def _some_pod(dice: random.Random, world: World, known: list[f.PodShape], calm: bool) -> f.Delta:
    uid = f"p-{dice.randrange(24)}"
    before = world.pods.get(uid)
    shape = dice.choice(known) if before is None or dice.random() < 0.1 else before.shape
    where = before.node if before is not None and before.node else ""
    if not where and (calm or dice.random() < 0.7):
        where = _room_for(dice, world, shape)
    if calm and not where and dice.random() < 0.9:
        world.pods.pop(uid, None)
        _forget_gone(world)
        return f.PodGone(uid)
    pod = f.PodSeen(
        uid,
        shape,
        node=where,
        since=dice.randrange(3),
        request=dice.choice(["", f"r-{dice.randrange(8)}", f"r-{dice.randrange(8)}"]),
        nominated=f"n-{dice.randrange(6)}" if dice.random() < 0.05 else "",
        terminating=dice.random() < 0.2,
    )
    world.pods[uid] = pod
    _forget_gone(world)
    return pod


def _room_for(dice: random.Random, world: World, shape: f.PodShape) -> str:
    """A node with resources left; who was let on it and why is history, so other filters do not matter."""
    for name in dice.sample(sorted(world.nodes), len(world.nodes)):
        here = [pod.shape for pod in world.pods.values() if pod.node == name]
        have = world.nodes[name].allocatable
        total = shape.requests
        for other in here:
            total = total + other.requests
        if have.covers(total) and len(here) < (have.get("pods") or 99):
            return name
    return ""


def _forget_gone(world: World) -> None:
    bound = {pod.node for pod in world.pods.values()}
    for name in [name for name in world.gone if name not in bound]:
        del world.gone[name]
