"""Requests and the pods that stand for them: which row counts whom, and which units have no pod yet.

Rows come from requests; pods say what became of them. Owns the links between the two; what a row adds up is `rows`.
"""

from __future__ import annotations

from bisect import insort
from operator import attrgetter

from bigfleet.operator.core.mirror.facts import RequestGone, RequestSeen
from bigfleet.operator.core.mirror.kinds import Kinds
from bigfleet.operator.core.mirror.pods import Pod, Request, Waitlist
from bigfleet.operator.core.rows import Family, RowBook, Rows

_UID = attrgetter("uid")


class Requests:
    """All requests by name, those only a pod has named yet included."""

    def __init__(self, kinds: Kinds, waitlist: Waitlist) -> None:
        self.rows = Rows()
        self.by_name: dict[str, Request] = {}
        self._kinds = kinds
        self._waitlist = waitlist

    def seen(self, asked: RequestSeen) -> None:
        kind = self._kinds.of(asked.shape)
        request = self.by_name.get(asked.name)
        kind.users += 1
        if request is None:
            request = self.by_name[asked.name] = Request(asked.name)
        elif request.kind is kind and request.units == asked.units and request.labels == asked.shape.labels:
            kind.users -= 1
            return
        else:
            self._withdraw(request)
        request.kind, request.units, request.labels = kind, max(0, asked.units), asked.shape.labels
        self._ask(request)

    def gone(self, withdrawn: RequestGone) -> None:
        request = self.by_name.get(withdrawn.name)
        if request is None:
            return
        self._withdraw(request)
        if not request.pods:
            del self.by_name[withdrawn.name]

    def _ask(self, request: Request) -> None:
        """Count the request in its row."""
        if request.kind is not None and request.units:
            request.row = self.rows.want(request.kind, request.units)
        self._share_out(request)

    def _withdraw(self, request: Request) -> None:
        """The request asks for nothing any more; its pods stay linked to it."""
        kind = request.kind
        self._unask(request)
        request.units, request.kind = 0, None
        if kind is not None:
            self._kinds.release(kind)

    def _unask(self, request: Request) -> None:
        kind = request.kind
        for pod in request.pods:
            self._set_row(pod, None)
        if kind is not None:
            if request.row is not None:
                self.rows.want(kind, -request.units)
            kind.placeholders.pop(request.name, None)
            self._waitlist.settle(kind)
        request.row = None

    def _share_out(self, request: Request) -> None:
        """Its pods stand for its units, oldest name first; units without a pod are placeholders."""
        for place, pod in enumerate(request.pods):
            self._set_row(pod, request.row if place < request.units else None)
        kind = request.kind
        if kind is None:
            return
        if request.placeholders:
            kind.placeholders[request.name] = request
            self._waitlist.kinds[kind] = None
        elif kind.placeholders.pop(request.name, None) is not None:
            self._waitlist.settle(kind)

    def _set_row(self, pod: Pod, row: RowBook | None) -> None:
        if pod.row is row:
            return
        if pod.running and pod.row is not None:
            pod.row.running -= 1
        pod.row = row
        if pod.running and row is not None:
            row.running += 1

    def link(self, pod: Pod, name: str) -> None:
        request = self.by_name.get(name)
        if request is None:
            request = self.by_name[name] = Request(name)
        pod.request = request
        insort(request.pods, pod, key=_UID)
        self._share_out(request)

    def unlink(self, pod: Pod, request: Request) -> None:
        request.pods.remove(pod)
        pod.request = None
        self._set_row(pod, None)
        if request.kind is None and not request.pods:
            del self.by_name[request.name]
        else:
            self._share_out(request)

    def regrid(self, now: int) -> None:
        """Tell a family of rows by exact units or on a grid, as `rows` wants it."""
        for family in self.rows.regrid(now):
            self._switch(family)

    def _switch(self, family: Family) -> None:
        mine = [
            request for request in self.by_name.values() if request.row is not None and request.row.family is family
        ]
        grew = self.rows.grew
        for request in mine:
            for pod in request.pods:
                self._set_row(pod, None)
        self.rows.switch(family)
        for request in mine:
            self._ask(request)
        self.rows.grew = grew

    def labels_matter(self) -> None:
        """Selectors name keys they did not name before."""
        for request in list(self.by_name.values()):
            if request.kind is None:
                continue
            kind = self._kinds.with_labels(request.kind.shape, request.labels)
            if kind is not request.kind:
                grew, old = self.rows.grew, request.kind
                self._unask(request)
                kind.users += 1
                request.kind = kind
                self._ask(request)
                self._kinds.release(old)
                self.rows.grew = grew
