"""Actions are read page by page while more of them happen: none is skipped, none is told twice."""

from __future__ import annotations

from itertools import islice

from bigfleet.model.machine import CallKind
from bigfleet.shard.read.action_pages import actions_after, is_token
from tests.strategies.shard_world import S, World, cpu


def page(world: World, token: str, size: int) -> list[tuple[str, str]]:
    read = world.core.read
    rows = actions_after(token, read.operations(), world.core.published.actions, read.record)
    return [(token, view.machine_id) for token, view in islice(rows, size)]


def test_pages_skip_nothing_and_repeat_nothing_while_actions_end() -> None:
    world = World()
    world.provider.several(30, "i")
    world.provider.work[CallKind.CONFIGURE] = 20.0
    operator = world.operator("c")
    operator.send(cpu("c", 10))
    world.run(30)
    operator.send(cpu("c", 25))
    world.run(4)
    under_way = {operation.machine.key for operation in world.core.read.operations()}
    assert len(under_way) == 15 and len(world.core.published.actions) == 10
    ended_before = {taken.machine for taken in world.core.published.actions}
    seen: list[str] = []
    token = ""
    while rows := page(world, token, 4):
        token = rows[-1][0]
        assert is_token(token)
        seen += [machine for _, machine in rows]
        if len(seen) == 16:
            world.run(40)  # Everything under way ends while somebody reads.
    assert ended_before <= set(seen) and len(seen) == len(set(seen))
    assert under_way <= set(seen)


def test_decided_and_finished_are_two_times_and_every_kind_says_what_it_beat() -> None:
    world = World()
    world.provider.add("s0", S.SPECULATIVE)
    world.provider.work[CallKind.CREATE] = 30.0
    operator = world.operator("c")
    operator.send(cpu("c", 1))
    world.run(60)
    operator.send()
    world.run(60)
    views = [view for _, view in actions_after("", [], world.core.published.actions, world.core.read.record)]
    assert {view.kind for view in views} >= {2, 3}
    bought = next(view for view in views if view.kind == 2)
    assert bought.finished_at_unix_nanos - bought.decided_at_unix_nanos > 29 * 10**9
    assert all(view.beat for view in views)


def test_what_is_no_token_is_refused() -> None:
    assert is_token("") and is_token("u:m-1") and is_token("e:17")
    assert not is_token("17") and not is_token("e:") and not is_token("e:x")
