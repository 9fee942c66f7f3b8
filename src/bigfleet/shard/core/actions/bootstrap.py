"""User data: asking a cluster's operator for the blob that turns a machine into its node.

A request id belongs to one machine and one attempt. It is asked again on a new stream of the cluster, but only within
its deadline; answers to anything else are dropped. The provider is not touched before the blob is here.
"""

from __future__ import annotations

from collections.abc import Callable

from bigfleet.engine.policy import SECOND
from bigfleet.model.names import MACHINE_ID_LABEL
from bigfleet.shard.contract.events import BootstrapAnswered
from bigfleet.shard.contract.frames import BootstrapRequest
from bigfleet.shard.contract.outcomes import Outcome
from bigfleet.shard.core.actions.call_queue import TIMER
from bigfleet.shard.core.clusters.nodes import Nodes
from bigfleet.shard.core.state.enum_aliases import BLOB
from bigfleet.shard.core.state.ids import IdSource
from bigfleet.shard.core.state.operations import Operation
from bigfleet.shard.core.state.sessions import Session
from bigfleet.shard.core.state.state import ShardState

ROUND_TRIP = "bigfleet_shard_request_bootstrap_seconds"
LOCAL_BLOB = b"#!/bin/true\n"


class Bootstraps:
    """Requests that wait for an operator. `ready(op)` and `failed(op, outcome, error)` tell how they end."""

    def __init__(
        self,
        state: ShardState,
        nodes: Nodes,
        ids: IdSource,
        ready: Callable[[Operation], None],
        failed: Callable[[Operation, Outcome, str], None],
    ) -> None:
        self._state = state
        self._nodes = nodes
        self._ids = ids
        self._ready = ready
        self._failed = failed
        self._requests: dict[str, Operation] = {}
        self._asked: dict[str, int] = {}

    def begin(self, operation: Operation) -> None:
        """Ask for a blob under a fresh id."""
        self.forget(operation)
        operation.to(BLOB)
        if self._state.config.local_bootstrap:
            operation.blob, operation.blob_expires = LOCAL_BLOB, 0
            self._ready(operation)
            return
        session = self._state.sessions.of(operation.cluster)
        if session is None:
            self._failed(operation, Outcome.NO_SESSION, f"cluster {operation.cluster} has no live session")
            return
        operation.request_id = self._ids.next()
        self._requests[operation.request_id] = operation
        self._asked[operation.request_id] = self._state.now
        self._state.timers.arm(TIMER, operation.machine.key, self._state.now + self._state.config.bootstrap_timeout)
        self._ask(session, operation)

    def answered(self, event: BootstrapAnswered) -> None:
        session = self._state.sessions.get(event.session)
        operation = self._requests.get(event.request_id)
        if session is None or operation is None or operation.cluster != session.cluster:
            return
        self._observe(operation)
        self.forget(operation)
        if event.error:
            self._failed(operation, Outcome.BLOB_ERROR, f"operator: {event.error}")
            return
        operation.blob = event.user_data
        operation.blob_expires = self._state.now + event.ttl_seconds * SECOND if event.ttl_seconds > 0 else 0
        self._ready(operation)

    def reissue(self, session: Session) -> None:
        """A new stream: ask again for everything that still waits."""
        for operation in self._state.operations.of_cluster(session.cluster):
            if operation.stage == BLOB and operation.request_id:
                self._ask(session, operation)

    def expire(self, operation: Operation) -> None:
        """Nobody answered in time."""
        self._observe(operation)
        self.forget(operation)
        away = self._state.sessions.of(operation.cluster) is None
        waited = self._state.config.bootstrap_timeout // SECOND
        outcome = Outcome.NO_SESSION if away else Outcome.TIMED_OUT
        self._failed(operation, outcome, f"no user data within {waited}s")

    def forget(self, operation: Operation) -> None:
        """Whatever is asked for this operation is no longer wanted."""
        if operation.request_id:
            self._requests.pop(operation.request_id, None)
            self._asked.pop(operation.request_id, None)
            operation.request_id = ""

    def still_wanted(self, request: BootstrapRequest) -> bool:
        return request.request_id in self._requests

    def validate(self) -> None:
        for request_id, operation in self._requests.items():
            assert operation.request_id == request_id and operation.stage == BLOB, f"stray request {request_id}"
        assert self._asked.keys() == self._requests.keys(), "requests and their instants disagree"

    def _ask(self, session: Session, operation: Operation) -> None:
        machine, profile = operation.machine, operation.profile
        labels = {**machine.shape.node_labels(), MACHINE_ID_LABEL: machine.key}
        session.outbox.request(
            machine.key,
            BootstrapRequest(
                request_id=operation.request_id,
                cluster=operation.cluster,
                requirements=profile.requirements if profile is not None else (),
                machine=machine.key,
                node_name=self._nodes.tell_name(operation.cluster, machine.key),
                labels=tuple(sorted(labels.items())),
            ),
        )
        self._state.sessions.wake(session)

    def _observe(self, operation: Operation) -> None:
        self._state.turn.observe(ROUND_TRIP, self._state.now - self._asked[operation.request_id])
