"""A mirror of the fleet beside the engine, for shapes whose cycles answer the engine's own actions.

Transitions are instant: an acquisition is Configured, a drain Idle, a release Speculative in the next cycle's deltas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bench.engine.columns import machine_batch, numbers_of
from bigfleet.engine.batches import NONE, MachineBatch, Shape, Stamp
from bigfleet.engine.engine import StepResult
from bigfleet.engine.results import ActionKind

T = TypeVar("T")

SPECULATIVE, CREATING, IDLE, CONFIGURING, CONFIGURED, DRAINING, DELETING, FAILED = range(1, 9)
_AFTER = {
    ActionKind.BOOTSTRAP: CONFIGURED,
    ActionKind.PROVISION: CONFIGURED,
    ActionKind.RECLAIM: IDLE,
    ActionKind.PREEMPT: IDLE,
    ActionKind.DELETE: SPECULATIVE,
}


class Mirror:
    """State, cluster and stamp of machine number n; what changed since the last batch leaves as the next one."""

    def __init__(
        self,
        state: NDArray[np.uint8],
        shape: NDArray[np.int32],
        shapes: Sequence[Shape],
        cluster: NDArray[np.int32],
        clusters: Sequence[str],
        stamp: NDArray[np.int32],
        stamps: list[Stamp],
    ) -> None:
        self.state, self.shape, self.cluster, self.stamp = state, shape, cluster, stamp
        self.shapes, self.clusters, self.stamps = shapes, clusters, stamps
        self._cluster_index = {name: index for index, name in enumerate(clusters)}
        self._stamp_index = {stamp: index for index, stamp in enumerate(stamps)}
        self._changed: list[NDArray[np.int64]] = []

    def load(self) -> MachineBatch:
        return self._batch(np.arange(len(self.state), dtype=np.int64))

    def set(self, numbers: NDArray[np.int64], state: int) -> None:
        """Moves machines; a state without a binding clears cluster and stamp."""
        self.state[numbers] = state
        if state in (SPECULATIVE, IDLE, FAILED, DELETING):
            self.cluster[numbers] = NONE
            self.stamp[numbers] = NONE
        self._changed.append(numbers)

    def answer(self, result: StepResult) -> None:
        """Carries out every action at once."""
        for action in result.actions.rows():
            number = int(numbers_of([action.machine])[0])
            after = _AFTER[action.kind]
            self.state[number] = after
            if after == CONFIGURED and action.need is not None:
                self.cluster[number] = self._cluster_index[action.cluster]
                self.stamp[number] = self._stamp(action.need.fingerprint, action.need.group)
            else:
                self.cluster[number] = NONE
                self.stamp[number] = NONE
            self._changed.append(np.array([number], np.int64))

    def take(self) -> MachineBatch | None:
        if not self._changed:
            return None
        numbers = np.unique(np.concatenate(self._changed))
        self._changed = []
        return self._batch(numbers)

    def _stamp(self, fingerprint: str, group: str) -> int:
        priority = int(fingerprint.split("|", 1)[0].removeprefix("p="))
        stamp = Stamp(priority, 8192.0, 8192.0, fingerprint, group)
        index = self._stamp_index.get(stamp)
        if index is None:
            index = self._stamp_index[stamp] = len(self.stamps)
            self.stamps.append(stamp)
        return index

    def _batch(self, numbers: NDArray[np.int64]) -> MachineBatch:
        """Carries only the table rows these machines use, as a provider delta would."""
        shape, shapes = _compact(self.shape[numbers], self.shapes)
        cluster, clusters = _compact(self.cluster[numbers], self.clusters)
        stamp, stamps = _compact(self.stamp[numbers], self.stamps)
        return machine_batch(numbers, self.state[numbers], shape, shapes, cluster, clusters, stamp, stamps)


def _compact(column: NDArray[np.int32], table: Sequence[T]) -> tuple[NDArray[np.int32], list[T]]:
    used, place = np.unique(column, return_inverse=True)
    kept = [table[index] for index in used if index != NONE]
    offset = 1 if len(used) and used[0] == NONE else 0
    return (place - offset).astype(np.int32), kept
