"""Whatever happens to pods and nodes, the cluster's books agree."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bigfleet.engine.batches import Shape
from bigfleet.model.resources import Resources
from bigfleet.sim.document.document import Amounts
from bigfleet.sim.scenario.shapes import Colocation, PodShape, SpreadSpec
from bigfleet.sim.world.cluster import Cluster
from bigfleet.sim.world.pods import Kinds

KINDS = Kinds(
    {
        "small": PodShape(resources=Amounts({"cpu": "1", "memory": "1Gi"}), priority=100),
        "large": PodShape(resources=Amounts({"cpu": "3", "memory": "2Gi"}), priority=1000),
        "gang": PodShape(resources=Amounts({"cpu": "2"}), same=Colocation.RACK),
        "even": PodShape(resources=Amounts({"cpu": "1"}), spread=(SpreadSpec(max_skew=1),)),
    },
    ["cpu", "memory"],
)
NAMES = st.sampled_from([f"set-{n}" for n in range(4)])
NODES = st.sampled_from([f"node-{n}" for n in range(5)])


class Silent:
    def pods_bound(self, cluster: str, priority_class: str, waited: int, count: int) -> None:
        assert waited >= 0
        assert count > 0

    def pods_waited(self, cluster: str, priority: int, since: int, until: int, count: int) -> None: ...

    def pods_interrupted(self, cluster: str, priority_class: str, cause: str, count: int) -> None:
        assert count > 0


class ClusterBooks(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.cluster = Cluster("c", KINDS, Silent())

    @rule(name=NAMES, kind=st.sampled_from(["small", "large", "gang", "even"]), count=st.integers(0, 9))
    def create(self, name: str, kind: str, count: int) -> None:
        if name not in self.cluster.podsets:
            self.cluster.create(name, name, KINDS[kind], count, self.now)

    @rule(name=NAMES, count=st.integers(0, 12))
    def scale(self, name: str, count: int) -> None:
        if name in self.cluster.podsets:
            self.cluster.scale(name, count, self.now)
            assert self.cluster.podsets[name].live == count

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        if name in self.cluster.podsets:
            self.cluster.delete(name, 0)

    @rule(name=NAMES, count=st.integers(1, 4))
    def roll(self, name: str, count: int) -> None:
        if name in self.cluster.podsets:
            before = self.cluster.podsets[name].live
            self.cluster.replace_oldest(name, count, self.now)
            assert self.cluster.podsets[name].live == before

    @rule(node=NODES, cpu=st.integers(1, 9), zone=st.sampled_from("ab"), rack=st.sampled_from("xy"))
    def join(self, node: str, cpu: int, zone: str, rack: str) -> None:
        if node not in self.cluster.nodes:
            size = Resources.of(cpu=cpu * 1000, memory=8 * 2**20)
            self.cluster.join(node, Shape("p", "t", zone, 1, 0.0, 0.0, size, (("topology.bigfleet/rack", rack),)))

    @rule(node=NODES)
    def leave(self, node: str) -> None:
        self.cluster.leave(node, "loss", self.now)

    @rule(node=NODES, on=st.booleans())
    def cordon(self, node: str, on: bool) -> None:
        self.cluster.cordon(node, on)

    @rule()
    def bind(self) -> None:
        self.now += 1
        self.cluster.bind(self.now)

    @invariant()
    def books_agree(self) -> None:
        self.cluster.validate()

    @invariant()
    def the_roll_up_is_all_demand(self) -> None:
        rollup = self.cluster.rollup()
        total = sum(p.live * p.kind.request.get("cpu") for p in self.cluster.podsets.values())
        assert int(rollup.aggregate[:, 0].sum()) == total

    @invariant()
    def gangs_are_in_one_domain(self) -> None:
        for podset in self.cluster.podsets.values():
            if podset.kind.topology_key:
                assert len({node.attributes.get(podset.kind.topology_key) for node in podset.bound}) <= 1


ClusterBooks.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_cluster_books = ClusterBooks.TestCase
