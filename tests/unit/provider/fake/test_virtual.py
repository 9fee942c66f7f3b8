"""The fake on the virtual clock: durations, faults, misfortune, commands, and one seed giving one history."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bigfleet.model.machine import MachineState
from bigfleet.provider.fake.catalogue import (
    LATENCIES,
    Catalogue,
    Misfortune,
    RateLimit,
    Scheduled,
    builtin_catalogue,
    with_reference_faults,
)
from bigfleet.provider.fake.commands import parse_command
from bigfleet.provider.fake.fields import CatalogueError
from bigfleet.provider.fake.virtual import VirtualProvider
from bigfleet.provider.kit.core.events import (
    Acknowledge,
    ConfigureRequested,
    CreateRequested,
    DeleteRequested,
    DrainRequested,
    Refusal,
    Refuse,
)
from bigfleet.provider.kit.core.records import Kind
from bigfleet.virtual.kernel import MINUTE, SECOND, Kernel

State = MachineState
SPOT = "spot-m6i-large-eu-west-1a-0000"
SPOT_B = "spot-m6i-large-eu-west-1b-0001"
METAL = "onprem-general-dc1-hall-a-0000"


def world(**changes: object) -> tuple[Kernel, VirtualProvider]:
    durations = changes.pop("durations", "realistic")
    catalogue = replace(builtin_catalogue(), latencies=LATENCIES[str(durations)], **changes)  # type: ignore[arg-type]
    return made(catalogue)


def made(catalogue: Catalogue) -> tuple[Kernel, VirtualProvider]:
    kernel = Kernel()
    return kernel, VirtualProvider(kernel, catalogue)


def state(provider: VirtualProvider, machine_id: str) -> MachineState | None:
    record = provider.get(machine_id)
    provider.validate()
    return record.state if record else None


def inject(provider: VirtualProvider, do: str, **fields: object) -> None:
    provider.inject(parse_command({"do": do, **fields}))


def test_a_machine_walks_its_whole_life_in_virtual_time() -> None:
    kernel, provider = world()
    ack = provider.request(CreateRequested(SPOT))
    assert isinstance(ack, Acknowledge) and ack.machine.state is State.CREATING
    kernel.run_for(4 * MINUTE)
    assert state(provider, SPOT) is State.IDLE
    provider.request(ConfigureRequested(SPOT, "prod", b"blob", {"k": "v"}))
    assert state(provider, SPOT) is State.CONFIGURING
    kernel.run_for(4 * MINUTE)
    record = provider.get(SPOT)
    assert record is not None and (record.state, record.cluster, dict(record.metadata)) == (
        State.CONFIGURED,
        "prod",
        {"k": "v"},
    )
    provider.request(DrainRequested(SPOT, 600))
    kernel.run_for(10 * MINUTE)
    provider.request(DeleteRequested(SPOT))
    kernel.run_for(4 * MINUTE)
    assert state(provider, SPOT) is State.SPECULATIVE
    assert [line.after for line in provider.core.story(SPOT)][1:] == [
        "CREATING",
        "IDLE",
        "CONFIGURING",
        "CONFIGURED",
        "DRAINING",
        "IDLE",
        "DELETING",
        "SPECULATIVE",
    ]


def test_instant_transitions_are_over_before_the_call_returns() -> None:
    kernel, provider = world(durations="instant")
    ack = provider.request(CreateRequested(SPOT))
    assert isinstance(ack, Acknowledge) and ack.machine.state is State.IDLE
    provider.request(ConfigureRequested(SPOT, "prod"))
    assert state(provider, SPOT) is State.CONFIGURED
    assert kernel.now == 0


def test_the_contract_is_the_kit_s_own() -> None:
    _, provider = world()
    answer = provider.request(DrainRequested(SPOT))
    assert isinstance(answer, Refuse) and answer.refusal is Refusal.OUT_OF_POSITION
    ghost = provider.request(CreateRequested("ghost"))
    assert isinstance(ghost, Refuse) and ghost.refusal is Refusal.UNKNOWN


def history(seed: int) -> list[tuple[str, float, str]]:
    luck = Misfortune(interruptions=200.0, notice_seconds=30.0, losses_per_hour=0.5, broken_share=0.5)
    kernel, provider = world(seed=seed, misfortune=luck, failure_rates={Kind.CREATE: 0.2})
    for record in list(provider.core.machines.values()):
        if record.state is State.SPECULATIVE:
            provider.request(CreateRequested(record.id))
    kernel.run_for(60 * MINUTE)
    provider.validate()
    ids = [instance.id for instance in provider.cloud.instances()]
    return [(machine_id, line.at, line.after) for machine_id in ids for line in provider.core.story(machine_id)]


def test_one_seed_gives_one_history_and_another_seed_another() -> None:
    assert history(5) == history(5)
    assert history(5) != history(6)


def test_the_luck_of_a_machine_does_not_depend_on_its_neighbours() -> None:
    _, alone = world()
    kernel_together, together = world()
    alone.request(CreateRequested(SPOT))
    together.request(CreateRequested(SPOT_B))
    together.request(CreateRequested(SPOT))
    kernel_alone = alone._kernel
    kernel_alone.run_for(4 * MINUTE)
    kernel_together.run_for(4 * MINUTE)
    assert [line.at for line in alone.core.story(SPOT)] == [line.at for line in together.core.story(SPOT)]


def test_failures_come_about_as_often_as_asked() -> None:
    kernel, provider = world(failure_rates={Kind.CREATE: 0.3})
    slots = [record.id for record in provider.core.machines.values() if record.state is State.SPECULATIVE]
    for machine_id in slots:
        provider.request(CreateRequested(machine_id))
    kernel.run_for(4 * MINUTE)
    failed = provider.core.counts()[State.FAILED]
    assert 0.22 * len(slots) < failed < 0.38 * len(slots)


def test_a_one_shot_fault_hits_once_and_says_why() -> None:
    kernel, provider = world()
    inject(provider, "fault-next", transition="create", effect="fail", machine=SPOT, error="no capacity in zone")
    provider.request(CreateRequested(SPOT))
    provider.request(CreateRequested(SPOT_B))
    kernel.run_for(4 * MINUTE)
    assert state(provider, SPOT) is State.FAILED
    record = provider.get(SPOT)
    assert record is not None and "no capacity in zone" in record.last_error
    assert state(provider, SPOT_B) is State.IDLE
    inject(provider, "repair", machine=SPOT)
    assert state(provider, SPOT) is State.SPECULATIVE
    provider.request(CreateRequested(SPOT))
    kernel.run_for(4 * MINUTE)
    assert state(provider, SPOT) is State.IDLE


def test_a_host_that_comes_smaller_is_shown_so_and_its_slot_is_for_sale_as_offered_again() -> None:
    kernel, provider = world()
    offered = provider.core.machines[SPOT].shape.allocatable
    inject(provider, "fault-next", transition="create", effect="smaller", machine=SPOT, allocatable={"cpu": "100m"})
    provider.request(CreateRequested(SPOT))
    kernel.run_for(4 * MINUTE)
    assert state(provider, SPOT) is State.IDLE
    assert dict(provider.core.machines[SPOT].shape.allocatable) == {"cpu": "100m"}
    provider.request(DeleteRequested(SPOT))
    kernel.run_for(4 * MINUTE)
    assert state(provider, SPOT) is State.SPECULATIVE
    assert provider.core.machines[SPOT].shape.allocatable == offered


@pytest.mark.parametrize(
    ("cluster", "error"),
    [
        ("fault-error", "injected configure failure"),
        ("fault-timeout", "timed out"),
        ("fault-slow-ok", "timed out"),
        ("fault-readiness-block", "node readiness"),
    ],
)
def test_the_reference_fault_clusters_end_in_failed_with_a_diagnosis(cluster: str, error: str) -> None:
    kernel, provider = made(with_reference_faults(builtin_catalogue()))
    provider.request(ConfigureRequested(METAL, cluster))
    kernel.run_for(10 * SECOND)
    record = provider.get(METAL)
    assert record is not None and record.state is State.FAILED and error in record.last_error
    provider.validate()


def test_the_reference_fault_slots_and_drains_fail_too() -> None:
    kernel, provider = made(with_reference_faults(builtin_catalogue()))
    failing = [machine_id for machine_id in provider.core.machines if machine_id.startswith("faultcreate-")]
    assert len(failing) == 8
    provider.request(CreateRequested(failing[0]))
    provider.bind(METAL, "fault-drain-error", {})
    provider.request(DrainRequested(METAL, 0))
    kernel.run_for(5 * SECOND)
    assert state(provider, failing[0]) is State.FAILED
    assert state(provider, METAL) is State.FAILED


def test_held_transitions_wait_for_their_release() -> None:
    kernel, provider = world(durations="instant")
    inject(provider, "hold", transition="configure")
    provider.request(ConfigureRequested(METAL, "prod"))
    kernel.run_for(MINUTE)
    assert state(provider, METAL) is State.CONFIGURING
    inject(provider, "release", transition="configure")
    assert state(provider, METAL) is State.CONFIGURED


def test_a_lost_host_leaves_the_list_and_its_slot_returns_later() -> None:
    kernel, provider = world(durations="instant")
    provider.request(CreateRequested(SPOT))
    cursor = provider.page().cursor
    inject(provider, "lose-hosts", machine=SPOT)
    assert state(provider, SPOT) is None
    assert list(provider.page(since=cursor).removed_ids) == [SPOT]
    kernel.run_for(2 * MINUTE)
    assert state(provider, SPOT) is State.SPECULATIVE
    inject(provider, "lose-hosts", machine=METAL)
    kernel.run_for(60 * MINUTE)
    assert state(provider, METAL) is None  # nobody sells a second on-prem machine of that id


def test_a_zone_can_fail_as_a_whole() -> None:
    _, provider = world()
    before = sum(1 for record in provider.core.machines.values() if record.host)
    inject(provider, "lose-hosts", zone="dc1-hall-a")
    left = [record for record in provider.core.machines.values() if record.host]
    assert len(left) == before // 2
    assert {record.zone for record in left} == {"dc1-hall-b"}


def test_a_spot_interruption_gives_notice_by_its_instant_and_risk_and_restores_the_slot_s_own() -> None:
    kernel, provider = world(durations="instant")
    provider.request(CreateRequested(SPOT))
    kernel.run_for(7 * SECOND)
    inject(provider, "interrupt", machine=SPOT)
    record = provider.get(SPOT)
    assert record is not None and record.shape.interruption_probability == 0.99
    assert record.interruption_at == 127.0
    kernel.run_for(119 * SECOND)
    assert state(provider, SPOT) is State.IDLE
    kernel.run_for(2 * SECOND)
    assert state(provider, SPOT) is None
    kernel.run_for(2 * MINUTE)
    record = provider.get(SPOT)
    assert record is not None
    assert (record.state, record.shape.interruption_probability) == (State.SPECULATIVE, 0.025)


def test_a_host_given_back_before_its_interruption_is_left_alone() -> None:
    kernel, provider = world(durations="instant")
    provider.request(CreateRequested(SPOT))
    inject(provider, "interrupt", machine=SPOT)
    provider.request(DeleteRequested(SPOT))
    kernel.run_for(SECOND)
    slot = provider.get(SPOT)
    assert slot is not None and slot.shape.interruption_probability == 0.025, "the notice was of the host that is gone"
    assert slot.interruption_at == 0.0
    provider.request(CreateRequested(SPOT))
    kernel.run_for(60 * MINUTE)
    assert state(provider, SPOT) is State.IDLE


def test_declared_spot_risk_comes_true_in_the_long_run() -> None:
    kernel, provider = world(durations="instant", misfortune=Misfortune(interruptions=1.0, notice_seconds=1.0))
    slots = [record.id for record in provider.core.machines.values() if record.capacity_type.name == "SPOT"]
    expected = sum(provider.core.machines[machine_id].shape.interruption_probability for machine_id in slots)
    for machine_id in slots:
        provider.request(CreateRequested(machine_id))
    kernel.run_for(60 * MINUTE)
    lost = sum(1 for machine_id in slots if any("spot" in line.cause for line in provider.core.story(machine_id)))
    assert 0.4 * expected < lost < 1.8 * expected


def test_quota_shrinks_by_withdrawing_slots_and_can_be_restored() -> None:
    kernel, provider = world()
    provider.request(CreateRequested("ondemand-m6i-large-eu-west-1a-0000"))
    kernel.run_for(4 * MINUTE)
    inject(provider, "shrink-quota", offering="ondemand-m6i-large", fraction=0.5)
    of_offering = [record for record in provider.core.machines.values() if record.id.startswith("ondemand-m6i-large-")]
    assert len(of_offering) == 48 - 47 // 2
    assert state(provider, "ondemand-m6i-large-eu-west-1a-0000") is State.IDLE
    inject(provider, "restore-quota", offering="ondemand-m6i-large")
    assert len([i for i in provider.core.machines if i.startswith("ondemand-m6i-large-")]) == 48
    with pytest.raises(CatalogueError, match="no withdrawn slot fits"):
        inject(provider, "restore-quota")


@pytest.mark.parametrize("opened_after", [1, 600])
def test_what_was_bought_in_a_zone_that_is_gone_can_be_had_again_when_it_is_back(opened_after: int) -> None:
    """A lost slot is listed again for a moment before it is withdrawn, and a quick buyer asks for it then."""
    kernel, provider = world()
    wanted = "ondemand-m6i-large-eu-west-1a-0000"
    provider.request(CreateRequested(wanted))
    kernel.run_for(4 * MINUTE)
    inject(provider, "close-zone", zone="eu-west-1a")
    kernel.run_for(MINUTE)
    assert state(provider, wanted) is State.SPECULATIVE
    provider.request(CreateRequested(wanted))
    kernel.run_for(opened_after * SECOND)
    assert state(provider, wanted) is (State.CREATING if opened_after == 1 else State.FAILED)
    inject(provider, "open-zone", zone="eu-west-1a")
    kernel.run_for(10 * MINUTE)
    assert state(provider, wanted) is State.SPECULATIVE


def test_a_closed_zone_has_nothing_to_offer_until_it_is_open_again() -> None:
    kernel, provider = world()
    zone, bought, coming = "eu-west-1a", "ondemand-m6i-large-eu-west-1a-0000", "ondemand-m6i-large-eu-west-1a-0003"
    there = {id for id, record in provider.core.machines.items() if record.zone == zone}
    provider.request(CreateRequested(bought))
    kernel.run_for(4 * MINUTE)
    assert state(provider, bought) is State.IDLE
    provider.request(CreateRequested(coming))
    kernel.run_for(SECOND)
    assert state(provider, coming) is State.CREATING
    inject(provider, "close-zone", zone=zone)

    def offered() -> set[str]:
        return {id for id, record in provider.core.machines.items() if record.zone == zone}

    assert offered() == set()
    kernel.run_for(30 * MINUTE)
    assert offered() == set(), "lost slots are listed again after a while, but not in a zone that is gone"
    inject(provider, "open-zone", zone=zone)
    assert offered() == there
    with pytest.raises(CatalogueError, match="zone 'eu-west-1a' is not closed"):
        inject(provider, "open-zone", zone=zone)
    with pytest.raises(CatalogueError, match="no machine is in zone 'moon'"):
        inject(provider, "close-zone", zone="moon")


def test_scheduled_commands_run_by_themselves() -> None:
    shrink = Scheduled(60.0, parse_command({"do": "shrink-quota"}))
    pointless = Scheduled(30.0, parse_command({"do": "interrupt"}))
    kernel, provider = world(schedule=(shrink, pointless))
    kernel.run_for(59 * SECOND)
    assert provider.core.counts()[State.SPECULATIVE] == 440
    assert "no machine fits any machine" in provider.cloud.complaints[0]
    kernel.run_for(2 * SECOND)
    assert provider.core.counts()[State.SPECULATIVE] == 0


def test_calls_beyond_the_rate_limit_wait_their_turn() -> None:
    kernel, provider = world(durations="instant", rate_limits={Kind.CREATE: RateLimit(1.0, 2)})
    slots = sorted(i for i, record in provider.core.machines.items() if record.state is State.SPECULATIVE)[:5]
    for machine_id in slots:
        provider.request(CreateRequested(machine_id))
    settled = []
    for _ in range(5):
        settled.append(provider.core.counts()[State.IDLE] - 32)
        kernel.run_for(SECOND)
    assert settled == [2, 3, 4, 5, 5]


def test_calls_beyond_the_rate_limit_may_fail_instead() -> None:
    _, provider = world(durations="instant", rate_limits={Kind.CREATE: RateLimit(1.0, 2, fail=True)})
    slots = sorted(i for i, record in provider.core.machines.items() if record.state is State.SPECULATIVE)[:5]
    for machine_id in slots:
        provider.request(CreateRequested(machine_id))
    assert provider.core.counts()[State.FAILED] == 3
    assert "rate limit" in provider.core.machines[slots[-1]].last_error


def test_machines_can_be_seeded_as_bound() -> None:
    _, provider = world()
    provider.bind(METAL, "prod", {"bigfleet.lucy.sh/assigned-priority": "100"})
    provider.bind(SPOT, "prod", {})
    for machine_id in (METAL, SPOT):
        record = provider.get(machine_id)
        assert record is not None and (record.state, record.cluster) == (State.CONFIGURED, "prod")
        assert record.host is not None
    provider.validate()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ({"do": "lose-hosts", "machine": SPOT}, "no machine fits machine spot-m6i.*give machines that have a host"),
        ({"do": "repair"}, "give machines that are FAILED"),
        ({"do": "interrupt", "machine": METAL}, "give spot machines that have a host"),
        ({"do": "lose-hosts", "zon": "a"}, "command has an unknown field 'zon'"),
        ({"do": "hold"}, "command.transition is missing"),
        ("lose-hosts", "command is 'lose-hosts'; give a mapping"),
    ],
)
def test_a_command_that_cannot_do_anything_says_so_and_does_nothing(command: object, message: str) -> None:
    _, provider = world()
    head = provider.core.changes.head
    with pytest.raises(CatalogueError, match=message):
        provider.inject(parse_command(command))
    assert provider.core.changes.head == head
