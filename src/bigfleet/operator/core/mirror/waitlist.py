"""Who waits: kinds with pods or placeholders that have no node, each kind's pods from the oldest on."""

from __future__ import annotations

from bisect import bisect_left, insort
from operator import attrgetter

from bigfleet.operator.core.mirror.kinds import Kind
from bigfleet.operator.core.mirror.pods import Pod

_AGE = attrgetter("age_key")


class Waitlist:
    """Kinds that wait, and pods that the scheduler makes room for on a node of its choice."""

    def __init__(self) -> None:
        self.kinds: dict[Kind, None] = {}
        self.nominated: dict[Pod, None] = {}

    def add(self, pod: Pod) -> None:
        pod.waiting = True
        waiting = pod.kind.waiting
        if not waiting or waiting[-1].age_key <= pod.age_key:
            waiting.append(pod)
        else:
            insort(waiting, pod, key=_AGE)
        self.kinds[pod.kind] = None
        if pod.nominated:
            self.nominated[pod] = None

    def remove(self, pod: Pod) -> None:
        pod.waiting = False
        waiting = pod.kind.waiting
        del waiting[bisect_left(waiting, pod.age_key, key=_AGE)]
        self.settle(pod.kind)
        self.nominated.pop(pod, None)

    def settle(self, kind: Kind) -> None:
        """Let go of a kind that nobody waits for."""
        if not kind.waiting and not kind.placeholders:
            self.kinds.pop(kind, None)
