"""Pods of one template: what the scheduler has said of one of them holds for those it has not looked at yet.

A scheduler looks at one pod after the other and writes down each that it cannot place before it looks at the next: of a
thousand pods made at once the last is judged half a minute after the first. They are all alike, so nobody has to wait
(ADR 19). Alike are pods of one ReplicaSet, ReplicationController or Job without volumes of their own.
"""

from __future__ import annotations

from collections.abc import Iterable

from bigfleet.operator.kube.objects import Pod
from bigfleet.operator.pods.rule import is_refused, is_unjudged
from bigfleet.operator.reading.volumes import claims_of

_ALIKE = ("ReplicaSet", "ReplicationController", "Job")


class Siblings:
    """Waiting pods by template: those the scheduler refused, and those it has not looked at."""

    def __init__(self) -> None:
        self._refused: dict[str, set[str]] = {}
        self._unjudged: dict[str, set[str]] = {}

    def seen(self, key: str, before: Pod | None, pod: Pod) -> Iterable[str]:
        """Note the pod as it is now; returns others of its template of which more is known than before."""
        if before is not None:
            self.gone(key, before)
        template = _template(pod)
        if not template:
            return ()
        if is_unjudged(pod):
            self._unjudged.setdefault(template, set()).add(key)
        elif is_refused(pod):
            first = template not in self._refused
            self._refused.setdefault(template, set()).add(key)
            if first:
                return tuple(self._unjudged.get(template, ()))
        return ()

    def gone(self, key: str, pod: Pod) -> None:
        template = _template(pod)
        for kept in (self._refused, self._unjudged):
            there = kept.get(template)
            if there is not None:
                there.discard(key)
                if not there:
                    del kept[template]

    def speak_for(self, pod: Pod) -> bool:
        """Whether a pod like this one waits, refused, while nobody has looked at this one."""
        return is_unjudged(pod) and _template(pod) in self._refused


def _template(pod: Pod) -> str:
    """Who made it, if whoever did makes all of them alike; empty otherwise."""
    for owner in pod.metadata.owner_references:
        if owner.controller and owner.kind in _ALIKE:
            return "" if claims_of(pod) else owner.uid
    return ""
