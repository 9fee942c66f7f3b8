"""Dollars, waits and utilisation are exact, whatever the sampling."""

import pytest

from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.provider.kit.core.records import Host, MachineRecord, Shape
from bigfleet.sim.world.meter import Meter
from bigfleet.virtual.kernel import HOUR, SECOND


def record(state: MachineState, market: CapacityType = CapacityType.ON_DEMAND, price: float = 2.0) -> MachineRecord:
    host = None if state is MachineState.SPECULATIVE else Host("p", "h")
    return MachineRecord("m", state, Shape("box", "z", market, price), host)


def test_a_machine_costs_from_the_moment_it_has_a_host() -> None:
    meter = Meter(("cpu",))
    slot, host = record(MachineState.SPECULATIVE), record(MachineState.IDLE)
    meter.machine(None, slot)
    meter.advance(HOUR)
    meter.machine(slot, host)
    meter.advance(HOUR + HOUR // 2)
    meter.machine(host, slot)
    meter.advance(9 * HOUR)
    assert meter.dollars == pytest.approx(1.0)
    assert meter.machine_hours == {"on-demand": 0.5}
    assert meter.states["Speculative"] == 1


def test_reserved_capacity_costs_whether_it_is_used_or_not() -> None:
    meter = Meter(("cpu",))
    meter.machine(None, record(MachineState.SPECULATIVE, CapacityType.RESERVED, price=3.0))
    meter.advance(2 * HOUR)
    assert meter.spent == {"reserved": 6.0}


def test_waits_are_weighted_by_pods() -> None:
    meter = Meter(("cpu",))
    meter.pods_bound("c", "batch", 10 * SECOND, 98)
    meter.pods_bound("c", "batch", 100 * SECOND, 1)
    meter.pods_bound("c", "batch", 1000 * SECOND, 1)
    waits = {p: meter.waited("batch", p) for p in (50, 98, 99, 100)}
    assert waits == {50: 10.0, 98: 10.0, 99: 100.0, 100: 1000.0}
    assert meter.waited("critical", 99) is None


def test_utilisation_is_an_integral() -> None:
    meter = Meter(("cpu",))
    meter.load("c", [10], [10])
    meter.advance(HOUR)
    meter.load("c", [0], [10])
    meter.advance(4 * HOUR)
    assert meter.utilisation("cpu") == pytest.approx(0.25)
    assert meter.utilisation("memory") == 0.0


def test_shortfalls_are_judged_by_the_time_they_last() -> None:
    meter = Meter(("cpu",))
    meter.shortfalls(((100, 2),))
    meter.advance(HOUR)
    meter.shortfalls(())
    meter.advance(2 * HOUR)
    meter.shortfalls(((1_000_000, 1),))
    assert meter.shortfall_range(0, 0) == (0, 2)
    assert meter.shortfall_range(HOUR, 0) == (0, 1)
    assert meter.shortfall_range(0, 1000) == (0, 1)
    assert meter.shortfall_range(3 * HOUR, 0) == (1, 1)
