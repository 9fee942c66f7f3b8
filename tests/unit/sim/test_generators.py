"""Jobs that lose a pod: those with checkpoints go on, others begin anew. Bursts come and go."""

from __future__ import annotations

import pytest

from bigfleet.engine.batches import Shape
from bigfleet.model.resources import Resources
from bigfleet.sim.document.document import Nanoseconds
from bigfleet.sim.scenario.shapes import PodShape
from bigfleet.sim.scenario.workloads import Archetypes, Trace, TraceJob
from bigfleet.sim.world.cluster import Cluster
from bigfleet.sim.world.generators import Generators, Stage
from bigfleet.sim.world.pods import Kinds
from bigfleet.virtual.kernel import MINUTE, Kernel


class Nobody:
    def pods_bound(self, cluster: str, priority_class: str, waited: int, count: int) -> None: ...
    def pods_waited(self, cluster: str, priority: int, since: int, until: int, count: int) -> None: ...

    def pods_interrupted(self, cluster: str, priority_class: str, cause: str, count: int) -> None: ...


@pytest.mark.parametrize(("checkpoints", "ends"), [(True, 16), (False, 20)])
def test_a_job_of_ten_minutes_that_loses_a_pod_after_four(checkpoints: bool, ends: int) -> None:
    shapes = {"one": PodShape(resources={"cpu": "1"})}
    kernel, kinds = Kernel(), Kinds(shapes, {"cpu", "memory"})
    cluster = Cluster("c", kinds, Nobody())
    generators = Generators(kernel, kinds, shapes, 60 * MINUTE)
    generators.attach(cluster)
    job = TraceJob(name="j", cluster="c", shape="one", arrival=Nanoseconds(0), duration=Nanoseconds(10 * MINUTE))
    stage = Stage(cluster, lambda name: cluster.bind(kernel.now))
    generators.play(Trace(name="t", jobs=(job,), checkpoints=checkpoints), [stage])
    node = Shape("p", "m", "a", 3, 1.0, 0.0, Resources({"cpu": 1000, "memory": 1024}))
    cluster.join("n1", node)
    kernel.run_until(4 * MINUTE)
    cluster.leave("n1", "loss", kernel.now)
    kernel.run_until(10 * MINUTE)
    cluster.join("n2", node)
    cluster.bind(kernel.now)
    kernel.run_until(ends * MINUTE - 1)
    assert cluster.podsets
    kernel.run_until(ends * MINUTE)
    assert not cluster.podsets


@pytest.mark.parametrize("archetype", ["gpu-training-large", "cpu-batch"])
def test_a_burst_comes_and_is_gone_for_good(archetype: str) -> None:
    kernel, kinds = Kernel(seed=1), Kinds({}, {"cpu", "memory", "nvidia.com/gpu"})
    cluster = Cluster("c", kinds, Nobody())
    burst = Archetypes(
        name="b", pods=20, only=(archetype,), start=Nanoseconds(5 * MINUTE), until=Nanoseconds(60 * MINUTE)
    )
    Generators(kernel, kinds, {}, 120 * MINUTE).play(burst, [Stage(cluster, lambda name: None)])
    kernel.run_until(5 * MINUTE - 1)
    assert not cluster.podsets
    kernel.run_until(60 * MINUTE - 1)
    assert {name.partition("-")[2].rpartition("-")[0] for name in cluster.podsets} == {archetype}
    assert sum(podset.live for podset in cluster.podsets.values()) >= 20
    kernel.run_until(120 * MINUTE)
    assert not cluster.podsets
