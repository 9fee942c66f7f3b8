"""Pods and requests as the mirror keeps them: one small record each, everything else is shared by kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bigfleet.operator.core.mirror.facts import Labels

if TYPE_CHECKING:
    from bigfleet.operator.core.mirror.kinds import Kind
    from bigfleet.operator.core.mirror.nodes import Node
    from bigfleet.operator.core.rows import RowBook


class Pod:
    """One pod. `host` is the node it counts on; without one it waits or its node is not known yet."""

    __slots__ = (
        "host",
        "kind",
        "labels",
        "matured",
        "node",
        "nominated",
        "request",
        "room_since",
        "row",
        "running",
        "since",
        "terminating",
        "uid",
        "waiting",
    )

    def __init__(self, uid: str, kind: Kind) -> None:
        self.uid = uid
        self.kind = kind
        self.labels: Labels = ()
        self.node = ""
        self.nominated = ""
        self.since = 0
        self.terminating = False
        self.request: Request | None = None
        # The row that counts it; None when nothing asks for it or enough others stand for its request.
        self.row: RowBook | None = None
        self.host: Node | None = None
        self.waiting = False
        # Bound to a node that is not away.
        self.running = False
        # Counted as one that has become old on a node.
        self.matured = False
        # Since when the mirror has had room for it without a break.
        self.room_since: int | None = None

    @property
    def age_key(self) -> tuple[int, str]:
        return self.since, self.uid


class Request:
    """So many units of a row; `pods` stand for some of them, the rest are placeholders."""

    __slots__ = ("kind", "labels", "name", "pods", "row", "units")

    def __init__(self, name: str) -> None:
        self.name = name
        self.units = 0
        self.labels: Labels = ()
        self.kind: Kind | None = None
        self.row: RowBook | None = None
        self.pods: list[Pod] = []

    @property
    def placeholders(self) -> int:
        return max(0, self.units - len(self.pods))
