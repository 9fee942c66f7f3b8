"""A provider that limits calls without saying that it does, with a shard, an operator and pods around it."""

import pytest

from bigfleet.sim.scenario.scenario import parse_scenario
from bigfleet.sim.world.simulation import Simulation
from bigfleet.virtual.kernel import MINUTE

SCENARIO = """\
name: bare-limit
description: The provider takes a call or two a second and refuses the others with a bare code while demand triples.
operator: reference
duration: 40m
shapes:
  service: {{resources: {{cpu: 4, memory: 16Gi}}, priority: 1000}}
fleets:
  - offers:
      - {{name: cheap, instance_type: m6i.xlarge, slots: 100, zones: [zone-a], price_per_hour: 1.0}}
      - {{name: dear, instance_type: r6i.xlarge, slots: 100, zones: [zone-a], price_per_hour: 3.0}}
clusters: [{{name: web}}]
workloads:
  - {{kind: deployment, name: web, shape: service, replicas: 10}}
steps:
  - {{at: 10m, do: rate-limit, for: 20m, per_second: {rate}, bare: true}}
  - {{at: 10m, do: scale, workload: web, replicas: 40}}
"""


@pytest.mark.parametrize(("rate", "minutes"), [(1, 5), (4, 3)])
def test_pods_run_soon_and_nothing_dearer_is_bought_for_it(rate: float, minutes: int) -> None:
    run = Simulation(parse_scenario(SCENARIO.format(rate=rate), "bare-limit"), check=True)
    run.kernel.run_until((10 + minutes) * MINUTE)
    machines = run.sites[0].ports["sim"].provider.core.machines.values()
    hosted = [record.shape.instance_type for record in machines if record.host is not None]
    bound = [record for record in machines if record.cluster == "web"]
    assert len(bound) >= 40
    assert set(hosted) == {"m6i.xlarge"}
