"""Whatever is asked of the fake and whatever goes wrong in it, the lifecycle's invariants hold at every instant."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from bigfleet.model.machine import MachineState
from bigfleet.provider.client.frames import MachineFrame
from bigfleet.provider.client.inventory import FrameScan, InventoryIndex
from bigfleet.provider.fake.catalogue import LATENCIES, Catalogue, Misfortune, builtin_catalogue, with_reference_faults
from bigfleet.provider.fake.commands import parse_command
from bigfleet.provider.fake.fields import CatalogueError
from bigfleet.provider.fake.virtual import VirtualProvider
from bigfleet.provider.kit.codec import MachineCodec
from bigfleet.provider.kit.core.events import ConfigureRequested, CreateRequested, DeleteRequested, DrainRequested
from bigfleet.provider.kit.core.records import Kind
from bigfleet.virtual.kernel import SECOND, Kernel

CLUSTERS = ("prod", "fault-error", "fault-timeout", "fault-slow-ok", "fault-drain-error", "fault-readiness-block")
numbers = st.integers(0, 11)
steps = st.one_of(
    st.tuples(st.just("create"), numbers, st.just(0)),
    st.tuples(st.just("configure"), numbers, st.integers(0, len(CLUSTERS) - 1)),
    st.tuples(st.just("drain"), numbers, st.integers(0, 60)),
    st.tuples(st.just("delete"), numbers, st.just(0)),
    st.tuples(st.just("time"), st.integers(0, 400), st.just(0)),
    st.tuples(st.sampled_from(["lose-hosts", "break", "repair", "interrupt", "shrink-quota"]), numbers, st.just(0)),
    st.tuples(st.sampled_from(["hold", "release", "restore-quota"]), numbers, st.just(0)),
    st.tuples(st.sampled_from(["close-zone", "open-zone"]), numbers, st.just(0)),
)


def small() -> Catalogue:
    catalogue = with_reference_faults(builtin_catalogue().with_slots(4))
    return replace(
        catalogue,
        offerings=tuple(replace(o, count=min(o.count, 4), hosts=min(o.hosts, 2)) for o in catalogue.offerings),
        latencies=LATENCIES["realistic"],
        failure_rates={Kind.CREATE: 0.1, Kind.DRAIN: 0.1},
        misfortune=Misfortune(interruptions=20.0, notice_seconds=10.0, losses_per_hour=2.0, broken_share=0.5),
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, max_size=60), st.booleans())
def test_invariants_hold_and_an_incremental_reader_always_agrees(
    program: list[tuple[str, int, int]], instant: bool
) -> None:
    catalogue = small()
    if instant:
        catalogue = replace(catalogue, latencies=LATENCIES["instant"])
    kernel = Kernel(seed=1)
    provider = VirtualProvider(kernel, catalogue)
    ids = [instance.id for instance in provider.cloud.instances()]
    seen: dict[str, MachineState] = {}
    cursor = b""

    for do, which, extra in program:
        machine_id = ids[which % len(ids)]
        match do:
            case "create":
                provider.request(CreateRequested(machine_id))
            case "configure":
                provider.request(ConfigureRequested(machine_id, CLUSTERS[extra]))
            case "drain":
                provider.request(DrainRequested(machine_id, extra))
            case "delete":
                provider.request(DeleteRequested(machine_id))
            case "time":
                kernel.run_for(which * SECOND)
            case "hold" | "release":
                provider.inject(parse_command({"do": do, "transition": list(Kind)[which % 4].value}))
            case "close-zone" | "open-zone":
                slot = catalogue.instance(machine_id)
                assert slot is not None
                try:
                    provider.inject(parse_command({"do": do, "zone": slot.zone}))
                except CatalogueError as error:
                    assert "zone" in str(error)
            case _:
                fields = {} if do == "restore-quota" else {"machine": machine_id}
                try:
                    provider.inject(parse_command({"do": do, **fields}))
                except CatalogueError as error:
                    assert "fits" in str(error)
        provider.validate()
        kernel.validate()
        page = provider.page(since=cursor)
        for gone in page.removed_ids:
            seen.pop(gone, None)
        seen |= {record.id: record.state for record in page.machines}
        cursor = page.cursor
        assert seen == {record.id: record.state for record in provider.core.machines.values()}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.booleans(), numbers), max_size=30), st.integers(1, 5))
def test_the_client_s_index_follows_the_provider_page_by_page(program: list[tuple[bool, int]], page_size: int) -> None:
    kernel = Kernel()
    provider = VirtualProvider(kernel, replace(small(), latencies=LATENCIES["instant"], misfortune=Misfortune()))
    codec, index = MachineCodec(), InventoryIndex()
    ids = [instance.id for instance in provider.cloud.instances()]
    cursor = b""
    for lose, which in program:
        machine_id = ids[which % len(ids)]
        if lose:
            try:
                provider.inject(parse_command({"do": "lose-hosts", "machine": machine_id}))
            except CatalogueError:
                continue
        else:
            provider.request(CreateRequested(machine_id))
        more = True
        while more:
            page = provider.page(max_results=page_size, since=cursor)
            frame = MachineFrame(codec.page(page))
            scan = FrameScan(frame, index, None)
            for _ in scan.slices(3):
                scan.commit()
            for gone in frame.removed_ids:
                index.forget(gone)
            cursor, more = frame.revision, frame.more
        assert sorted(i for i in ids if i in index) == sorted(provider.core.machines)
