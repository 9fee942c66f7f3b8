"""The soak in full protocol: the same random demand through sessions, links, bootstrap round trips and the kit.

Plays the shipped scenario `soak` with other numbers. Slower than the inline soak by what the pretend operators and the
provider's lifecycle cost; it shows that nothing leaks or sticks where calls and frames take their time.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import asdict, replace

from bigfleet.sim import library
from bigfleet.sim.document.document import Nanoseconds
from bigfleet.sim.scenario.scenario import Scenario
from bigfleet.sim.scenario.workloads import Churn
from bigfleet.sim.soak.soak import CYCLE, SoakConfig, SoakReport, megabytes, stays_flat
from bigfleet.sim.world.meter import ACTIONS
from bigfleet.sim.world.simulation import Simulation

# The last change must be through before machines are counted as stuck.
_QUIET = 30 * CYCLE


def run_full_protocol(config: SoakConfig, progress: Callable[[float], None] | None = None) -> SoakReport:
    """Play a soak with everything in between, and judge it."""
    run = Simulation(soak_scenario(config), sampled=False)
    seen = [megabytes()]
    run.kernel.at(config.cycles * CYCLE // 10, lambda: seen.append(megabytes()))
    began, worked = time.perf_counter(), time.process_time()
    run.run(progress)
    seconds, cpu = time.perf_counter() - began, time.process_time() - worked
    gc.collect()
    early, late = seen[-1], megabytes()
    leaked = run.leaks(failed_allowed=0, patience=_QUIET // 2)
    return SoakReport(
        protocol="full",
        config=asdict(config),
        seconds=round(seconds, 3),
        cpu_seconds=round(cpu, 3),
        cycles=run.cycles,
        actions={kind: count for kind in sorted(ACTIONS) if (count := run.actions(kind, 0, ""))},
        machines=sum(run.states().values()),
        states={state: count for state, count in sorted(run.states().items()) if count},
        leaked=leaked,
        megabytes_early=early,
        megabytes_late=late,
        passed=not leaked and stays_flat(early, late),
    )


def soak_scenario(config: SoakConfig) -> Scenario:
    """The shipped scenario with the soak's numbers, and a quiet end."""
    shipped = library.find("soak")
    fleet = shipped.fleets[0]
    idle, rented = fleet.offers
    offers = (replace(idle, idle=config.idle), replace(rented, slots=config.speculative))
    ends = config.cycles * CYCLE
    churn = tuple(
        replace(workload, every=Nanoseconds(config.churn_every * CYCLE), most=config.most, until=Nanoseconds(ends))
        for workload in shipped.workloads
        if isinstance(workload, Churn)
    )
    return shipped.with_(
        name="soak-in-full-protocol",
        seed=config.seed,
        duration=Nanoseconds(ends + _QUIET),
        fleets=(replace(fleet, offers=offers),),
        clusters=tuple(replace(cluster, count=config.clusters) for cluster in shipped.clusters),
        workloads=churn,
        expect=(),
    )
