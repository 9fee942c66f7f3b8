"""Plays workloads: creates, scales and ends objects in clusters at the times their kind prescribes.

Every (cluster, workload) draws from a stream of its own, so adding one workload never changes another. What a running
workload can be told (`scale`, `restart`) is told here too.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from bigfleet.sim.scenario.archetypes import draw
from bigfleet.sim.scenario.shapes import PodShape
from bigfleet.sim.scenario.workloads import (
    Archetypes,
    Churn,
    Deployment,
    Diurnal,
    Jobs,
    Level,
    Levels,
    Trace,
    TraceJob,
    Workload,
)
from bigfleet.sim.world.cluster import Cluster
from bigfleet.sim.world.pods import Kinds, PodKind, PodSet
from bigfleet.virtual.kernel import HOUR, Duration, Kernel, Timer


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a workload plays: a cluster, and how to say that its demand changed."""

    cluster: Cluster
    changed: Callable[[str], None]


@dataclass(slots=True)
class Run:
    """A job under way: what is left of it, and when it ends if all its pods keep running."""

    left: int
    checkpoints: bool
    ends: Timer | None = None


class Unfinished(NamedTuple):
    """Jobs that had not ended when the run did, what the longest of them had left, and that of all their pods."""

    jobs: int
    longest: int
    pods_together: int


class Generators:
    """All workloads of a run."""

    def __init__(self, kernel: Kernel, kinds: Kinds, shapes: dict[str, PodShape], end: int) -> None:
        self._kernel = kernel
        self._kinds = kinds
        self._shapes = shapes
        self._end = end
        self._extra: dict[str, PodKind] = {}
        self._running: dict[tuple[str, str], Run] = {}
        self._stage_of: dict[str, Stage] = {}
        self._anew = (0, 0)

    def play(self, workload: Workload, stages: list[Stage]) -> None:
        """Start a workload on the stages it concerns."""
        if isinstance(workload, Trace):
            self._trace(workload, {stage.cluster.name: stage for stage in stages})
            return
        if isinstance(workload, Levels):
            self._levels(workload, {stage.cluster.name: stage for stage in stages})
            return
        chosen = [stage for stage in stages if not workload.clusters or stage.cluster.name in workload.clusters]
        if isinstance(workload, Churn):
            self._churn(workload, chosen)
            return
        for place, stage in enumerate(chosen):
            dice = self._kernel.random_stream(f"workload/{stage.cluster.name}/{workload.name}")
            match workload:
                case Deployment():
                    self._deployment(workload, stage)
                case Diurnal():
                    self._diurnal(workload, stage, place, dice)
                case Jobs():
                    self._jobs(workload, stage, dice)
                case Archetypes():
                    self._archetypes(workload, stage, dice)

    @property
    def begun_anew(self) -> tuple[int, int]:
        """How often a job lost a pod and began anew, and the time of all its pods that had to be run again."""
        return self._anew

    def unfinished(self) -> Unfinished:
        """Of jobs whose length is known and that have pods."""
        found = []
        for (cluster, name), run in self._running.items():
            if pods := self._stage_of[cluster].cluster.podsets[name].live:
                found.append((run.left if run.ends is None else run.ends.due - self._kernel.now, pods))
        return Unfinished(len(found), max(found, default=(0, 0))[0], sum(left * pods for left, pods in found))

    def attach(self, cluster: Cluster) -> None:
        """Jobs end some time after their last pod started, and start over when a pod was lost."""
        cluster.on_all_bound = lambda podset, now: self._begin_run(cluster, podset)
        cluster.on_lost = lambda podset: self._lose_run(cluster, podset)

    def scale(self, workload: str, stages: list[Stage], replicas: int | None, factor: float | None) -> None:
        for stage in stages:
            for podset in _of(stage.cluster, workload):
                target = replicas if replicas is not None else round(podset.live * (factor or 0.0))
                stage.cluster.scale(podset.name, target, self._kernel.now)
            stage.changed(stage.cluster.name)

    def withdraw(self, stages: list[Stage]) -> None:
        for stage in stages:
            for podset in list(stage.cluster.podsets.values()):
                stage.cluster.scale(podset.name, 0, self._kernel.now)
            stage.changed(stage.cluster.name)

    def restart(self, workload: str, stages: list[Stage], surge: float, pause: int) -> None:
        """A rolling update of every object of a workload."""
        for stage in stages:
            for podset in _of(stage.cluster, workload):
                batch = max(1, math.ceil(podset.live * surge))
                self._roll(stage, podset, batch, podset.live, pause)

    def _roll(self, stage: Stage, podset: PodSet, batch: int, left: int, pause: int) -> None:
        if left <= 0 or podset.name not in stage.cluster.podsets:
            return
        stage.cluster.replace_oldest(podset.name, min(batch, left), self._kernel.now)
        stage.changed(stage.cluster.name)
        self._kernel.after(pause, lambda: self._roll(stage, podset, batch, left - batch, pause))

    # ----------------------------------------------------------------------------------------------------------- kinds

    def _deployment(self, workload: Deployment, stage: Stage) -> None:
        kind = self._kinds[workload.shape]

        def create() -> None:
            for number in range(workload.objects):
                name = workload.name if workload.objects == 1 else f"{workload.name}-{number:04}"
                stage.cluster.create(name, workload.name, kind, workload.replicas, self._kernel.now)
            stage.changed(stage.cluster.name)

        if workload.start == 0:
            create()
        else:
            self._kernel.at(workload.start, create)

    def _diurnal(self, workload: Diurnal, stage: Stage, place: int, dice: random.Random) -> None:
        kind = self._kinds[workload.shape]
        cluster = stage.cluster
        cluster.create(workload.name, workload.name, kind, 0, self._kernel.now)

        def adjust() -> None:
            offset = self._kernel.now - workload.peak_at - place * workload.shift_per_cluster
            wave = (1 + math.cos(2 * math.pi * offset / workload.period)) / 2
            level = workload.trough + (workload.peak - workload.trough) * wave
            noise = 1 + workload.noise * (2 * dice.random() - 1)
            cluster.scale(workload.name, max(0, round(level * noise)), self._kernel.now)
            stage.changed(cluster.name)

        adjust()
        self._kernel.every(workload.step, adjust)

    def _jobs(self, workload: Jobs, stage: Stage, dice: random.Random) -> None:
        until = self._end if workload.until is None else min(workload.until, self._end)
        weights = [part.weight for part in workload.mix]
        count = 0

        def arrive() -> None:
            nonlocal count
            part = dice.choices(workload.mix, weights)[0]
            pods = dice.randint(*part.pods)
            lasts = (part.duration or workload.duration).sample(dice)
            self._job(stage, f"{workload.name}-{count:06}", workload, self._kinds[part.shape], pods, lasts)
            count += 1
            plan()

        def plan() -> None:
            if workload.per_hour <= 0:
                return
            due = self._kernel.now + round(dice.expovariate(workload.per_hour) * HOUR)
            if due <= until:
                self._kernel.at(due, arrive)

        if workload.start <= self._kernel.now:
            plan()
        elif workload.start <= until:
            self._kernel.at(workload.start, plan)

    def _archetypes(self, workload: Archetypes, stage: Stage, dice: random.Random) -> None:
        def begin() -> None:
            for number, drawn in enumerate(draw(workload.pods, workload.only, workload.exclude, dice)):
                kind = self._kind(f"{workload.name}/{drawn.shape_name}", drawn.shape)
                name = f"{workload.name}-{drawn.archetype}-{number:05}"
                if drawn.lifetime is None:
                    stage.cluster.create(name, workload.name, kind, drawn.pods, self._kernel.now)
                else:
                    self._recurring(stage, name, workload, kind, drawn.pods, drawn.lifetime, dice)
            stage.changed(stage.cluster.name)

        def end() -> None:
            for podset in _of(stage.cluster, workload.name):
                stage.cluster.delete(podset.name, self._kernel.now)
            stage.changed(stage.cluster.name)

        if workload.start == 0:
            begin()
        else:
            self._kernel.at(workload.start, begin)
        if workload.until is not None:
            self._kernel.at(workload.until, end)

    def _recurring(
        self, stage: Stage, name: str, workload: Archetypes, kind: PodKind, pods: int, mean: int, dice: random.Random
    ) -> None:
        """A job that is followed by another like it, so that churn goes on at a steady level."""
        lifetime = Duration.exponential(mean)

        def create() -> None:
            stage.cluster.create(name, workload.name, kind, pods, self._kernel.now, service=False)
            stage.changed(stage.cluster.name)
            self._kernel.after(max(1, lifetime.sample(dice)), end)

        def end() -> None:
            if workload.until is None or self._kernel.now < workload.until:
                stage.cluster.delete(name, self._kernel.now)
                create()

        create()

    def _churn(self, workload: Churn, stages: list[Stage]) -> None:
        dice = self._kernel.random_stream(f"workload/{workload.name}")
        shape = self._shapes[workload.shape]
        changes = 0

        def change() -> None:
            nonlocal changes
            changes += 1
            stage = dice.choice(stages)
            cluster = stage.cluster
            pods, priority = dice.randint(1, workload.most), dice.randrange(*workload.priorities)
            if workload.name in cluster.podsets:
                cluster.delete(workload.name, self._kernel.now)
            if changes % workload.withdraw_every:
                kind = self._kinds.make(f"{workload.shape}@{priority}", replace(shape, priority=priority))
                cluster.create(workload.name, workload.name, kind, pods, self._kernel.now)
            stage.changed(cluster.name)

        changing = self._kernel.every(workload.every, change)

        def stop() -> None:
            changing.cancel()

        if workload.until is not None:
            self._kernel.at(workload.until, stop)

    def _trace(self, workload: Trace, stages: dict[str, Stage]) -> None:
        """One instant plans the next: a history of a million jobs must not wait in the kernel all at once."""
        jobs = sorted(workload.jobs, key=lambda job: (job.arrival, job.cluster, job.name))
        played = [each for each in enumerate(jobs) if each[1].cluster in stages and each[1].arrival <= self._end]
        instants = groupby(played, key=lambda each: each[1].arrival)

        def arrive(group: list[tuple[int, TraceJob]]) -> None:
            for number, job in group:
                name = f"{workload.name}-{number:06}"
                self._job(stages[job.cluster], name, workload, self._kinds[job.shape], job.pods, job.duration)
            plan()

        def plan() -> None:
            following = next(instants, None)
            if following is not None:
                at, group = following[0], list(following[1])
                self._kernel.at(at, lambda: arrive(group))

        plan()

    def _levels(self, workload: Levels, stages: dict[str, Stage]) -> None:
        for level in sorted(workload.levels, key=lambda level: (level.at, level.cluster, level.object)):
            if level.cluster in stages and level.at <= self._end:
                self._kernel.at(level.at, lambda level=level: self._level(workload, stages[level.cluster], level))  # type: ignore[misc]

    def _level(self, workload: Levels, stage: Stage, level: Level) -> None:
        cluster, name = stage.cluster, f"{workload.name}/{level.object}"
        if name in cluster.podsets:
            cluster.scale(name, level.pods, self._kernel.now)
        else:
            cluster.create(name, workload.name, self._kinds[level.shape], level.pods, self._kernel.now)
        stage.changed(cluster.name)

    # ------------------------------------------------------------------------------------------------------------ jobs

    def _job(
        self, stage: Stage, name: str, workload: Jobs | Trace, kind: PodKind, pods: int, lasts: int | None
    ) -> None:
        if lasts is not None:
            self._running[stage.cluster.name, name] = Run(max(1, lasts), workload.checkpoints)
        self._stage_of[stage.cluster.name] = stage
        stage.cluster.create(name, workload.name, kind, pods, self._kernel.now, service=lasts is None)
        stage.changed(stage.cluster.name)

    def _begin_run(self, cluster: Cluster, podset: PodSet) -> None:
        run = self._running.get((cluster.name, podset.name))
        if run is not None and run.ends is None:
            run.ends = self._kernel.after(run.left, lambda: self._end_run(cluster, podset.name))

    def _lose_run(self, cluster: Cluster, podset: PodSet) -> None:
        run = self._running.get((cluster.name, podset.name))
        if run is not None and run.ends is not None:
            left = max(1, run.ends.due - self._kernel.now)
            if run.checkpoints:
                run.left = left
            else:
                self._anew = (self._anew[0] + 1, self._anew[1] + (run.left - left) * podset.live)
            run.ends.cancel()
            run.ends = None

    def _end_run(self, cluster: Cluster, name: str) -> None:
        del self._running[cluster.name, name]
        cluster.delete(name, self._kernel.now)
        self._stage_of[cluster.name].changed(cluster.name)

    def _kind(self, name: str, shape: PodShape) -> PodKind:
        if name not in self._extra:
            self._extra[name] = self._kinds.make(name, shape)
        return self._extra[name]


def _of(cluster: Cluster, workload: str) -> list[PodSet]:
    return [podset for podset in cluster.podsets.values() if podset.workload == workload]
