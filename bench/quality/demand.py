"""Demand of a replay as columns: classes of pods, and pods that arrive and have work to do.

Owns what a pod is to the judge. A pod's work is done when it has run for so long, wherever; a pod that was moved goes
on where it was, and what that cost its owner are its class's reclamation dollars.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bench.quality.kinds import RESOURCES, Flags, Floats, Ints

NOBODY = -1


@dataclass(frozen=True, slots=True)
class Classes:
    """Pods of one class are interchangeable. `exclusive`: two of the same token never share a node."""

    request: Ints
    service: Flags
    interruption: Floats
    reclamation: Floats
    exclusive: Ints

    def __len__(self) -> int:
        return len(self.request)

    @property
    def pinned(self) -> Flags:
        return np.isinf(self.reclamation)


@dataclass(frozen=True, slots=True)
class Trace:
    """Pods in order of arrival (seconds). `gang`: members run in one rack, all or none; the others are NOBODY."""

    name: str
    seed: int
    horizon: float
    classes: Classes
    cls: Ints
    cluster: Ints
    arrive: Floats
    work: Floats
    gang: Ints
    clusters: int = 1

    def __len__(self) -> int:
        return len(self.cls)

    def alive(self, at: float) -> Flags:
        """Who would run at that moment had everybody started on arrival."""
        return (self.arrive <= at) & (at < self.arrive + self.work)

    def first(self, seconds: float) -> Trace:
        """The beginning of it; whole if it is no longer."""
        if seconds >= self.horizon:
            return self
        kept = self.arrive < seconds
        columns = {name: getattr(self, name)[kept] for name in ("cls", "cluster", "arrive", "work", "gang")}
        return replace(self, horizon=seconds, **columns)

    def counts(self, at: float, cluster: int | None = None) -> Ints:
        """How many of each class would run at that moment."""
        chosen = self.alive(at)
        if cluster is not None:
            chosen &= self.cluster == cluster
        return np.bincount(self.cls[chosen], minlength=len(self.classes)).astype(np.int64)


class TraceBuilder:
    """Collects pods and gives each distinct kind of pod a class."""

    def __init__(self, name: str, seed: int, horizon: float) -> None:
        self.name, self.seed, self.horizon = name, seed, horizon
        self._classes: dict[tuple[object, ...], int] = {}
        self._pods: list[tuple[float, float, int, int, int]] = []

    def add(
        self,
        arrive: float,
        work: float,
        request: tuple[int, int, int],
        *,
        service: bool = False,
        interruption: float = 0.0,
        reclamation: float = 0.005,
        exclusive: int = NOBODY,
        cluster: int = 0,
        gang: int = NOBODY,
    ) -> None:
        if not 0 <= arrive < self.horizon or work <= 0:
            return
        key = (request, service, interruption, reclamation, exclusive)
        number = self._classes.setdefault(key, len(self._classes))
        self._pods.append((float(arrive), float(work), number, cluster, gang))

    def build(self, clusters: int = 1) -> Trace:
        rows = sorted(self._pods)
        keys = list(self._classes)
        classes = Classes(
            np.array([key[0] for key in keys], np.int64).reshape(-1, RESOURCES),
            np.array([key[1] for key in keys], np.bool_),
            np.array([key[2] for key in keys], np.float64),
            np.array([key[3] for key in keys], np.float64),
            np.array([key[4] for key in keys], np.int64),
        )
        arrive, work, cls, cluster, gang = (np.array(column) for column in zip(*rows, strict=True))
        return Trace(
            self.name,
            self.seed,
            self.horizon,
            classes,
            cls.astype(np.int64),
            cluster.astype(np.int64),
            arrive.astype(np.float64),
            work.astype(np.float64),
            gang.astype(np.int64),
            clusters,
        )


Array = NDArray[np.float64]
