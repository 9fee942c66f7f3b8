"""`ShardRead` and `ShardAdmin`: what a shard knows and why it decided so, paged and filtered, and its switches.

Reads never block a cycle: they work on the last published decision and on single records between two events, in slices
that give the loop its turn. Every page can be resumed from; a page token is the key after which to go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
import structlog

from bigfleet.model.machine import MachineState
from bigfleet.operator.need_codec import need_to_wire
from bigfleet.shard.contract import events as ev
from bigfleet.shard.core.actions.emission import KEPT_ACTIONS
from bigfleet.shard.core.machines.matching import parse_canonical
from bigfleet.shard.read import views
from bigfleet.shard.read.action_pages import actions_after, is_token
from bigfleet.shard.read.explaining import explained, refused, rendered
from bigfleet.shard.read.inspecting import needs_of_last_step
from bigfleet.shard.read.unmet_words import UnmetWords
from bigfleet.transport.identity import ADMIN, READONLY, Identity, IdentityError, peer_identity
from bigfleet.wire import capacity_pb2, provider_pb2, shard_pb2, shard_pb2_grpc, shardread_pb2, shardread_pb2_grpc

if TYPE_CHECKING:
    from bigfleet.engine.results import Verdict
    from bigfleet.shard.core.core import ShardCore
    from bigfleet.shard.core.published import MachineView
    from bigfleet.shard.core.state.fleet import Record
    from bigfleet.shard.recording.switch import Recording
    from bigfleet.shard.runtime.conductor import Conductor
    from bigfleet.shard.runtime.engine_thread import EngineThread

log = structlog.get_logger(__name__)

PAGE = 500
LARGEST_PAGE = 5000
EXPLAINED_PAGE = 10
# Clusters named to somebody who asked for one that does not exist.
NAMED_CLUSTERS = 20
# Rows rendered, or records looked at, before the loop gets its turn.
SLICE = 200
SCANNED_SLICE = 5000

Context = Any
T = TypeVar("T")


class ReadService(shardread_pb2_grpc.ShardReadServicer):
    """Serves every reader with the readonly or the admin identity."""

    def __init__(
        self, core: ShardCore, engine: EngineThread, waiting_for: Callable[[], str | None] = lambda: None
    ) -> None:
        self._core = core
        self._engine = engine
        self._waiting_for = waiting_for
        # Copies of the engine are large: one at a time.
        self._explaining = asyncio.Lock()

    async def InspectNeeds(  # noqa: N802
        self, request: shardread_pb2.InspectNeedsRequest, context: Context
    ) -> AsyncIterator[shardread_pb2.InspectNeedsResponse]:
        await _admit(context, "InspectNeeds", READONLY, ADMIN)
        await self._decided(context)
        page = await needs_of_last_step(self._engine, request.cluster_id, request.limit)
        left_out = left_out_of(self._core, request.cluster_id)
        header = shardread_pb2.InspectNeedsHeader(
            cycle=page.cycle, computed_at_unix_nanos=page.computed_at, total_needs=page.total + len(left_out)
        )
        yield shardread_pb2.InspectNeedsResponse(header=header)
        known = UnmetWords(self._core)
        async for verdict in _slices(page.verdicts, SLICE):
            yield shardread_pb2.InspectNeedsResponse(need=need_of(self._core, verdict, known))
        # Last: they have no place in the order of needs.
        room = max(0, request.limit - len(page.verdicts)) if request.limit > 0 else len(left_out)
        for view in left_out[:room]:
            yield shardread_pb2.InspectNeedsResponse(need=view)

    async def ListMachines(  # noqa: N802
        self, request: shardread_pb2.ListMachinesRequest, context: Context
    ) -> AsyncIterator[shardread_pb2.ListMachinesResponse]:
        await _admit(context, "ListMachines", READONLY, ADMIN)
        await _known_cluster(self._core, context, request.cluster_id)
        size, left = await _page_size(context, request.page_size), request.limit if request.limit > 0 else None
        page = shardread_pb2.ListMachinesResponse(cycle=self._core.published.cycle)
        last = ""
        async for record in _slices(self._records(request.machine_id, request.page_token), SCANNED_SLICE):
            if not _wanted(record, request):
                continue
            if len(page.machines) >= size or left == 0:
                page.next_page_token = last
                yield page
                if left == 0:
                    return
                page = shardread_pb2.ListMachinesResponse(cycle=page.cycle)
            view = self._core.read.machine(record.key)
            if view is None:
                continue
            page.machines.append(views.machine_view(view))
            last = record.key
            left = None if left is None else left - 1
        yield page

    async def ListActions(  # noqa: N802
        self, request: shardread_pb2.ListActionsRequest, context: Context
    ) -> AsyncIterator[shardread_pb2.ListActionsResponse]:
        await _admit(context, "ListActions", READONLY, ADMIN)
        size, left = await _page_size(context, request.page_size), request.limit if request.limit > 0 else None
        if not is_token(request.page_token):
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"page_token {request.page_token!r} is not one this shard gave out"
            )
        taken, read = self._core.published.actions, self._core.read
        page = shardread_pb2.ListActionsResponse()
        last = request.page_token
        async for token, view in _slices(
            actions_after(request.page_token, read.operations(), taken, read.record), SLICE
        ):
            if not _wanted_action(view, request):
                continue
            if len(page.actions) >= size or left == 0:
                page.next_page_token = last
                yield page
                if left == 0:
                    return
                page = shardread_pb2.ListActionsResponse()
            last = token
            page.actions.append(view)
            left = None if left is None else left - 1
        page.truncated = len(taken) >= KEPT_ACTIONS
        yield page

    async def Explain(  # noqa: N802
        self, request: shardread_pb2.ExplainRequest, context: Context
    ) -> shardread_pb2.ExplainResponse:
        await _admit(context, "Explain", READONLY, ADMIN)
        await self._decided(context)
        await _known_cluster(self._core, context, request.cluster_id)
        published = self._core.published
        size = min(request.page_size, EXPLAINED_PAGE) if request.page_size > 0 else EXPLAINED_PAGE
        begin = await _number(context, request.page_token)
        page = await needs_of_last_step(self._engine, request.cluster_id, 0)
        known = UnmetWords(self._core)
        matching = [
            verdict
            for verdict in page.verdicts
            if request.fingerprint in ("", verdict.key.fingerprint)
            and request.group in ("", verdict.key.group)
            and not (request.unmet_only and verdict.satisfied and not known.held(verdict))
        ]
        left_out = [
            view
            for view in left_out_of(self._core, request.cluster_id)
            if request.fingerprint in ("", view.profile_fingerprint) and request.group in ("", view.need.group)
        ]
        total = len(left_out) + len(matching)
        answer = shardread_pb2.ExplainResponse(
            cycle=page.cycle, computed_at_unix_nanos=page.computed_at, total_matching=total
        )
        # First: nothing that is said of the others holds for them.
        answer.explanations.extend(refused(view) for view in left_out[begin : begin + size])
        rest, last = max(0, begin - len(left_out)), max(0, begin + size - len(left_out))
        async with self._explaining:
            found = await explained(self._engine, [verdict.key for verdict in matching[rest:last]])
        for each in found:
            need = need_of(self._core, each.verdict, known)
            made = rendered(each, published, need)
            made.need.CopyFrom(need)
            answer.explanations.append(made)
        if begin + size < total:
            answer.next_page_token = str(begin + size)
        return answer

    async def Story(  # noqa: N802
        self, request: shardread_pb2.StoryRequest, context: Context
    ) -> shardread_pb2.StoryResponse:
        await _admit(context, "Story", READONLY, ADMIN)
        view = self._core.read.machine(request.machine_id)
        if view is None or request.provider not in ("", view.provider):
            named = [request.provider] if request.provider else [each.name for each in self._core.published.providers]
            found = [self._core.read.machine(f"{name}/{request.machine_id}") for name in named]
            known = [each for each in found if each is not None]
            view = known[0] if len(known) == 1 else None
        if view is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"machine {request.machine_id!r} is not known to this shard")
            raise AssertionError("abort does not return")
        lines = view.story[-request.limit :] if request.limit > 0 else view.story
        return shardread_pb2.StoryResponse(
            events=[_story_event(line.at, line.text, view) for line in lines], truncated=len(lines) < len(view.story)
        )

    async def _decided(self, context: Context) -> None:
        """Refuses questions about decisions while this fleet cannot be decided about, and says why."""
        waits = self._waiting_for()
        if waits is not None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"nothing has been decided yet: {waits}")

    def _records(self, machine_id: str = "", after: str = "") -> Iterator[Record]:
        """Records in order of their keys, of one machine or of all."""
        return (record for record in self._core.read.records(after) if not machine_id or _means(machine_id, record))


class AdminService(shard_pb2_grpc.ShardAdminServicer):
    """Flips rails and recordings, and forgets clusters, for holders of the admin identity."""

    def __init__(self, core: ShardCore, conductor: Conductor, recording: Recording, shard_id: str) -> None:
        self._core = core
        self._conductor = conductor
        self._recording = recording
        self._shard_id = shard_id

    async def SetRails(  # noqa: N802
        self, request: capacity_pb2.SetRailsRequest, context: Context
    ) -> capacity_pb2.SetRailsResponse:
        who = await _admit(context, "SetRails", ADMIN)
        if request.shard_id not in ("", self._shard_id):
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"shard_id is {request.shard_id!r}; this shard is {self._shard_id!r}"
            )
        if request.HasField("rails"):
            rails = request.rails
            set_by = str(who) if who else rails.set_by or "plaintext"
            await self._conductor.ask(ev.RailsSet(rails.actuation_paused, rails.dry_run, set_by, rails.reason))
        published = self._core.published
        switches = self._core.read.rails.in_force
        return capacity_pb2.SetRailsResponse(
            effective=capacity_pb2.Rails(
                actuation_paused=published.paused,
                dry_run=published.dry_run,
                reason=switches.reason,
                set_by=switches.who,
                set_at_unix_nanos=switches.at,
            )
        )

    async def Record(self, request: shard_pb2.RecordRequest, context: Context) -> shard_pb2.RecordResponse:  # noqa: N802
        await _admit(context, "Record", ADMIN)
        try:
            if request.command == shard_pb2.RecordRequest.COMMAND_START:
                self._recording.start(request.file_name)
            elif request.command == shard_pb2.RecordRequest.COMMAND_STOP:
                self._recording.stop()
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        state = self._recording.state
        return shard_pb2.RecordResponse(
            recording=state.recording,
            path=state.path,
            started_at_unix_nanos=state.started,
            bytes_written=state.bytes_written,
        )

    async def ForgetCluster(  # noqa: N802
        self, request: shard_pb2.ForgetClusterRequest, context: Context
    ) -> shard_pb2.ForgetClusterResponse:
        who = await _admit(context, "ForgetCluster", ADMIN)
        cluster, read = request.cluster_id, self._core.read
        if not cluster:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, "cluster_id is ''; the name of a cluster this shard knows is accepted"
            )
        if waits := self._core.published.waiting_for:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"what cluster {cluster!r} has is not known yet: {waits}")
        await _known_cluster(self._core, context, cluster)
        if not read.connected(cluster) and request.confirm:
            told_by = str(who) if who else "plaintext"
            await self._conductor.ask(ev.ClusterForgotten(cluster, told_by, request.reason))
        # Asked after it was tried: the core refuses too, and an operator may connect at any time.
        if read.connected(cluster):
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"cluster {cluster!r} is not deleted: its operator is connected; only a cluster whose operator was "
                "stopped for good can be forgotten",
            )
        machines, dollars = read.forgetting.bound(cluster)
        return shard_pb2.ForgetClusterResponse(
            machines=machines,
            dollars_per_hour=dollars,
            away_since_unix_nanos=read.away_since(cluster),
            forgetting=cluster in read.forgetting,
            held=self._core.published.paused or self._core.published.dry_run,
        )


def need_of(core: ShardCore, verdict: Verdict, known: UnmetWords | None = None) -> shardread_pb2.NeedView:
    """What a reader is shown of a need, as the last step left it; `known` serves all needs of one question."""
    key = verdict.key
    profile = core.read.profile(key.fingerprint, key.cluster)
    need = capacity_pb2.CapacityNeed(priority=verdict.priority, group=key.group)
    if profile is not None:
        need = need_to_wire(profile, core.read.aggregate(key), parse_canonical(key.min_unit), key.group)
    need.exclusive.extend(core.read.exclusive(key))
    published = core.published
    sold_out: Iterable[str] = ()
    if published.sold_out and profile is not None:
        unit = parse_canonical(key.min_unit)
        sold_out = views.sold_out_for(profile, unit, published.sold_out, published.now)
    known = known or UnmetWords(core)
    detail, failed = known.of(verdict, profile)
    barred = []
    if unasked := {**published.away, **published.stood_off}:
        names = {*published.barred.get(key, ()), *known.resting_at(verdict, profile, unasked)}
        barred = [f"{name}: {why}" for name, why in sorted(unasked.items()) if name in names]
    blocked = (key.cluster, key.fingerprint) in published.blocked
    away = core.read.away_since(key.cluster)
    return views.need_view(
        verdict,
        need,
        blocked,
        sold_out,
        barred,
        detail,
        failed,
        held=known.held(verdict),
        away_since=away,
        not_as_offered=known.not_as_offered(verdict, profile),
    )


async def _known_cluster(core: ShardCore, context: Context, cluster: str) -> None:
    """Silence about a cluster that does not exist would read as "all is well"."""
    known = core.read.known_clusters()
    if not cluster or cluster in known:
        return
    names = sorted(known)
    more = f" and {len(names) - NAMED_CLUSTERS} more" if len(names) > NAMED_CLUSTERS else ""
    there = f"it knows {', '.join(names[:NAMED_CLUSTERS])}{more}" if names else "it knows none yet"
    await context.abort(grpc.StatusCode.NOT_FOUND, f"cluster {cluster!r} is not known to this shard; {there}")


def left_out_of(core: ShardCore, cluster: str) -> list[shardread_pb2.NeedView]:
    """What a reader is shown of rows that are refused."""
    return [
        views.refused_view(
            each, need_to_wire(each.profile, each.aggregate, each.unit, each.group), core.read.away_since(each.cluster)
        )
        for each in core.read.left_out(cluster)
    ]


async def _admit(context: Context, rpc: str, *allowed: Identity) -> Identity | None:
    """The caller, None over plaintext; anybody else is refused and logged."""
    try:
        presented = peer_identity(context)
        if presented is None or presented in allowed:
            return presented
        problem = f"presented {presented}"
    except IdentityError as error:
        presented, problem = None, str(error)
    log.error("shard rejected read identity", rpc=rpc, presented_identity=str(presented) if presented else problem)
    wanted = " or ".join(str(identity) for identity in allowed)
    await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"{rpc} requires {wanted}: {problem}")
    raise AssertionError("abort does not return")


async def _page_size(context: Context, asked: int) -> int:
    if asked < 0:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"page_size is {asked}; 0 or more is accepted")
    return min(asked, LARGEST_PAGE) if asked else PAGE


async def _number(context: Context, token: str) -> int:
    if token and not token.isdecimal():
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"page_token {token!r} is not one this shard gave out")
    return int(token) if token else 0


async def _slices(rows: Iterable[T], size: int) -> AsyncIterator[T]:
    """The rows, with a turn for the loop after every so many."""
    for number, row in enumerate(rows, start=1):
        yield row
        if number % size == 0:
            await asyncio.sleep(0)


def _means(name: str, record: Record) -> bool:
    """Whether somebody who says this may mean the machine: by its id, its key or `provider/id`."""
    return name in (record.id, record.key) or name == f"{record.provider}/{record.id}"


def _wanted(record: Record, request: shardread_pb2.ListMachinesRequest) -> bool:
    shape = record.shape
    return (
        (not request.states or int(record.state) in request.states)
        and request.cluster_id in ("", record.cluster)
        and request.instance_type in ("", shape.instance_type)
        and request.zone in ("", shape.zone)
        and request.provider in ("", shape.provider)
    )


def _wanted_action(view: shardread_pb2.ActionView, request: shardread_pb2.ListActionsRequest) -> bool:
    return (
        (not request.kinds or view.kind in request.kinds)
        and request.cluster_id in ("", view.cluster_id)
        and request.instance_type in ("", view.instance_type)
        and request.zone in ("", view.zone)
        and request.provider in ("", view.provider)
        and request.machine_id in ("", view.machine_id, f"{view.provider}/{view.machine_id}")
        and request.outcome in ("", view.outcome)
        and view.decided_at_unix_nanos >= request.since_unix_nanos
    )


_LABELS = {state.label: provider_pb2.MachineState.ValueType(state) for state in MachineState}


def _story_event(at: int, text: str, view: MachineView) -> shardread_pb2.StoryEvent:
    event = shardread_pb2.StoryEvent(at_unix_nanos=at, detail=text, event="told", cluster_id=view.record.cluster)
    before, arrow, after = text.partition(" → ")
    if arrow and before in _LABELS:
        event.event = "moved"
        event.from_state = _LABELS[before]
        event.to_state = _LABELS.get(after.partition(":")[0], provider_pb2.MACHINE_STATE_UNSPECIFIED)
    return event
