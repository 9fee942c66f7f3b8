"""A cluster for the operator's benchmark: web services, jobs, gangs, devices, spreads, anti-affinity, DaemonSets.

Plays the scheduler in the plainest way (any node with room) and keeps its own books; no code of the mirror.
"""

from __future__ import annotations

import random

from msgspec.structs import replace

from bigfleet.model.names import HOSTNAME_LABEL, ZONE_LABEL
from bigfleet.model.profile import Profile
from bigfleet.model.requirement import Operator, Requirement
from bigfleet.model.resources import Resources
from bigfleet.model.spread import Spread, WhenUnsatisfiable
from bigfleet.model.taint import Taint, Toleration
from bigfleet.operator.core.mirror import facts as f
from bigfleet.operator.core.mirror.labels import Selector, equal_to

SECOND = 1_000_000_000
GIB = 1 << 20  # in KiB
RACK = "topology.bigfleet/rack"
GPU = "nvidia.com/gpu"
DAEMON = f.PodShape(
    "kube-system", Resources.of(cpu=200, memory=GIB // 4), Profile((), (), 2_000_000, 0, 0), origin=f.Origin.DAEMON
)


class World:
    """Nodes, workloads and pods; `begin` and `change` give what the mirror is told."""

    def __init__(self, nodes: int, pods: int, seed: int) -> None:
        self._dice = random.Random(seed)
        self.now = 1_000 * SECOND
        self.waiting: dict[str, f.PodSeen] = {}
        self.nodes: dict[str, f.NodeSeen] = {}
        self.pods: dict[str, f.PodSeen] = {}
        self._free: dict[str, list[int]] = {}
        self._numbers = 0
        self._shapes = self._workloads()
        self._weights = [weight for _, weight in self._shapes]
        self._names: list[str] = []
        self._bound: list[str] = []
        self._away: list[str] = []
        self._wanted_nodes, self._wanted_pods = nodes, pods
        self.kinds = len(self._shapes)
        hard = sum(w for s, w in self._shapes if s.ports or s.affinity or s.anti_affinity or s.spreads or s.group)
        self.hard_share = round(hard / sum(self._weights), 3)

    def _workloads(self) -> list[tuple[f.PodShape, float]]:
        """300 templates: 200 services of four sizes, 80 jobs, 12 gangs with devices, 8 with host ports."""
        dice, found = self._dice, []
        for number in range(300):
            app = f"app-{number}"
            own = Selector(equal_to({"app": app}))
            if number < 200:
                cpu, memory = dice.choice([(250, GIB // 2), (500, GIB), (1000, 2 * GIB), (2000, 8 * GIB)])
                amounts, priority, weight, service = {"cpu": cpu, "memory": memory}, dice.choice([0, 0, 100]), 8.0, True
            elif number < 280:
                cpu = dice.randrange(100, 8000, 50)
                amounts = {"cpu": cpu, "memory": cpu * dice.choice([1, 2, 4]) * 1024}
                priority, weight, service = -10, 2.0, False
            elif number < 292:
                amounts = {"cpu": 8000, "memory": 32 * GIB, GPU: dice.choice([1, 2, 4])}
                priority, weight, service = 50, 0.3, False
            else:
                amounts, priority, weight, service = {"cpu": 500, "memory": GIB}, 10, 1.0, True
            gang = number >= 280 and number < 292
            zoned = number < 200 and number % 10 == 0
            apart = number < 200 and number % 10 == 5
            spread = [Spread(ZONE_LABEL, 1, WhenUnsatisfiable.DO_NOT_SCHEDULE)] if zoned else []
            requirements = [Requirement(RACK, Operator.SAME)] if gang else []
            tolerations = (Toleration(GPU, "Exists"),) if GPU in amounts else ()
            shape = f.PodShape(
                namespace=f"team-{number % 20}",
                requests=Resources(amounts),
                profile=Profile(requirements, spread, priority, dice.choice([1, 3]), 1, tolerations),
                group=f"{RACK}\x00job={app},;\x00team-{number % 20}" if gang else "",
                labels=(("app", app), ("tier", "web" if service else "batch")),
                node_terms=(equal_to({ZONE_LABEL: f"z-{number % 3}"}),) if number % 17 == 0 else (),
                tolerations=tolerations,
                ports=(f.HostPort("TCP", 9000 + number),) if number >= 292 else (),
                anti_affinity=(f.PodTerm(HOSTNAME_LABEL, own, (f"team-{number % 20}",)),) if apart else (),
                spreads=(f.SpreadTerm(ZONE_LABEL, 1, own),) if zoned else (),
                service=service,
            )
            found.append((shape, weight))
        return found

    def begin(self) -> list[f.Delta]:
        """Everything there is at first: 99.5 % of the pods run, the rest waits."""
        out: list[f.Delta] = []
        for _ in range(self._wanted_nodes):
            out += self._add_node()
        self._names = sorted(self.nodes)
        for number in range(20):
            selector = Selector(equal_to({"app": f"app-{number}"}))
            out.append(f.BudgetSeen(f"pdb-{number}", f"team-{number % 20}", selector, number % 2))
        while len(self.pods) < self._wanted_pods:
            out += self._add_pod(bind=len(self.pods) < 0.995 * self._wanted_pods)
        return out

    def change(self, share: float) -> list[f.Delta]:
        """So many pods change: a third end, as many come and wait, and what waited before is bound where it fits."""
        out: list[f.Delta] = []
        self.now += 10 * SECOND
        budget = int(len(self.pods) * share)
        for _ in range(budget // 3):
            out += self._end(self._some_bound())
        for uid in list(self.waiting):
            pod = self.waiting[uid]
            node = self._room(pod.shape)
            if node:
                out.append(self._bind(pod, node))
        while len(self.pods) < self._wanted_pods:
            out += self._add_pod(bind=False)
        # Nodes that were not ready are again, others are not for a while.
        away, self._away = self._away, self._dice.sample(self._names, max(1, int(len(self.nodes) * share / 2)))
        out += [self._ready(name, True) for name in away]
        out += [self._ready(name, False) for name in self._away]
        return out

    # ---------------------------------------------------------------------------------------------------------- details

    def _add_node(self) -> list[f.Delta]:
        number, dice = self._numbers, self._dice
        self._numbers += 1
        name = f"node-{number:06}"
        gpus = number % 25 == 0
        sizes = [(96_000, 768 * GIB)] if gpus else [(32_000, 64 * GIB), (32_000, 128 * GIB), (48_000, 192 * GIB)]
        cpu, memory = dice.choice(sizes)
        amounts = {"cpu": cpu, "memory": memory, "pods": 110}
        if gpus:
            amounts[GPU] = 8
        labels = {
            HOSTNAME_LABEL: name,
            ZONE_LABEL: f"z-{number % 3}",
            RACK: f"r-{number // 40}",
            "node.kubernetes.io/instance-type": f"t-{cpu}",
        }
        taints = (Taint(GPU, "present", "NoSchedule"),) if gpus else ()
        node = f.NodeSeen(
            name, Resources(amounts), tuple(sorted(labels.items())), taints, f"m-{name}" if number % 20 else ""
        )
        self.nodes[name] = node
        self._free[name] = [cpu, memory, amounts.get(GPU, 0), 110]
        self._take(name, DAEMON, 1)
        return [node, f.PodSeen(f"daemon-{name}", DAEMON, node=name)]

    def _add_pod(self, *, bind: bool) -> list[f.Delta]:
        shape = self._dice.choices(self._shapes, self._weights)[0][0]
        self._numbers += 1
        uid = f"{shape.namespace}/{dict(shape.labels)['app']}-{self._numbers:08x}"
        node = self._room(shape) if bind else ""
        pod = f.PodSeen(uid, shape, since=self.now, request=f"cr-{uid}")
        self.pods[uid] = self.waiting[uid] = pod
        out: list[f.Delta] = [f.RequestSeen(f"cr-{uid}", shape)]
        out.append(self._bind(pod, node) if node else pod)
        return out

    def _bind(self, pod: f.PodSeen, node: str) -> f.PodSeen:
        bound = f.PodSeen(pod.uid, pod.shape, node, pod.since, pod.request)
        self.pods[pod.uid] = bound
        self.waiting.pop(pod.uid, None)
        self._bound.append(pod.uid)
        self._take(node, pod.shape, 1)
        return bound

    def _end(self, uid: str) -> list[f.Delta]:
        pod = self.pods.pop(uid)
        self._take(pod.node, pod.shape, -1)
        return [f.PodGone(uid), f.RequestGone(pod.request)]

    def _some_bound(self) -> str:
        while True:
            place = self._dice.randrange(len(self._bound))
            uid = self._bound[place]
            self._bound[place] = self._bound[-1]
            self._bound.pop()
            if uid in self.pods:
                return uid

    def _ready(self, name: str, ready: bool) -> f.NodeSeen:
        self.nodes[name] = node = replace(self.nodes[name], ready=ready)
        return node

    def _room(self, shape: f.PodShape) -> str:
        amounts = shape.requests
        cpu, memory, gpu = amounts.get("cpu"), amounts.get("memory"), amounts.get(GPU)
        zones = [value for term in shape.node_terms for check in term for value in check.values]
        for _ in range(60 if not gpu else 600):
            name = self._dice.choice(self._names)
            free = self._free[name]
            fits = free[0] >= cpu and free[1] >= memory and free[2] >= gpu and free[3] > 0
            node = self.nodes[name]
            if fits and bool(gpu) == bool(node.taints) and (not zones or dict(node.labels)[ZONE_LABEL] in zones):
                return name
        return ""

    def _take(self, node: str, shape: f.PodShape, count: int) -> None:
        free, amounts = self._free[node], shape.requests
        for place, amount in enumerate((amounts.get("cpu"), amounts.get("memory"), amounts.get(GPU), 1)):
            free[place] -= amount * count
