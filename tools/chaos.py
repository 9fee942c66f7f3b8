"""Break everything around a running shard, in seeded order, and check that nothing stays broken.

    python -m tools.chaos --events 500 --json docs/evidence/shard-chaos.json

A shard, a provider with a state file and two processes of operators, all real; calls and frames pass a meddler, and
the shard's memory is on a small disk. Events kill, hang, cut, repeat, hide, sell out, poison, expire, fill and empty.
After every few events it must calm down by itself: demand met exactly, what the shard, the provider and every cluster
know of each machine agrees, nothing acknowledged was forgotten. All the time: no more machines are bought than were
ever asked for, nobody's process dies of itself, files and memory stay flat.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import bigfleet  # noqa: F401  # before grpc: it fixes the TLS versions
from bigfleet.provider.fake.control import send_command
from bigfleet.transport import channel
from bigfleet.wire import capacity_pb2, shard_pb2_grpc
from tools import chaos_losses as losses
from tools.chaos_witness import FAILED, SERVING, Witness
from tools.meddling import Meddler
from tools.processes import BIGFLEET, INTERPRETED, LocalFleet, Program
from tools.small_disk import SmallDisk, small_disk

CALM_SECONDS = 60.0
EVENTS_PER_CALM = 5
# Beyond what differs between two moments of an idle process.
FILES_ALLOWED = 16
MEMORY_ALLOWED = 32 << 20

SETTINGS: dict[str, Any] = {
    "cycle-interval": "300ms",
    "early-cycle-interval": "100ms",
    "reconcile-interval": "200ms",
    "loss-confirm-interval": "300ms",
    "reclaim-hold": "0",
    "reclaim-cap-fraction": 0,
    "reclaim-grace": "3s",
    "drain-report-slack": "500ms",
    "idle-hold-on-demand": "500ms",
    "idle-hold-spot": "500ms",
    "execute-timeout": "2s",
    "retry-delay": "50ms",
    "retry-delay-max": "500ms",
    "create-timeout": "10s",
    "configure-timeout": "10s",
    "drain-timeout": "5s",
    "delete-timeout": "10s",
    "breaker-delay": "200ms",
    "breaker-delay-max": "1s",
    "machine-backoff": "200ms",
    "machine-backoff-max": "1s",
    "stuck-hold": "300ms",
    "bootstrap-timeout": "1s",
    "bootstrap-backoff": "100ms",
    "bootstrap-backoff-max": "500ms",
    "read-timeout": "2s",
    "list-timeout": "5s",
}


def _offering(name: str, capacity: str, count: int, hosts: int = 0) -> dict[str, Any]:
    return {
        "name": name,
        "instance_type": name,
        "capacity_type": capacity,
        "count": count,
        "hosts": hosts,
        "zones": ["zone-a"],
        "price_per_hour": 0.1,
        "resources": {"cpu": "2", "memory": "8Gi"},
        **({"interruption_probability": 0.01} if capacity == "spot" else {}),
    }


CATALOGUE = {
    "provider": "fake",
    "relist_after": "2s",
    "offerings": [
        _offering("steady", "on-demand", 80),
        _offering("swing", "spot", 80),
        _offering("pool", "reserved", 8, hosts=8),
    ],
}
HIGH, LOW = 1_000_000, 1
# Clusters by operator process: the first one's demand never changes.
OPERATORS = {"operator-1": ("steady-1", "pool-high"), "operator-2": ("swing-1", "pool-low")}
FIRST_DEMAND = {
    "steady-1": ("steady", 5, 10),
    "swing-1": ("swing", 4, 10),
    "pool-high": ("pool", 2, HIGH),
    "pool-low": ("pool", 5, LOW),
}


@dataclass
class Chaos:
    """One run."""

    folder: Path
    dice: random.Random
    environment: dict[str, str]
    done: Counter[str] = field(default_factory=Counter)
    # Events this host does not allow.
    skipped: Counter[str] = field(default_factory=Counter)
    disk: SmallDisk | None = None
    problems: list[str] = field(default_factory=list)
    calms: list[dict[str, Any]] = field(default_factory=list)
    demand: dict[str, tuple[str, int, int]] = field(default_factory=lambda: dict(FIRST_DEMAND))
    peak: Counter[str] = field(default_factory=Counter)
    spoiled: Counter[str] = field(default_factory=Counter)
    broken: set[str] = field(default_factory=set)
    rails: tuple[bool, bool] = (False, False)
    history: list[str] = field(default_factory=list)
    told_all: bool = False
    only: tuple[str, ...] = ()

    async def run(self, events: int) -> None:
        async with AsyncExitStack() as stack:
            self.disk = stack.enter_context(small_disk(self.folder / "data"))
            self.fleet = LocalFleet(self.folder, CATALOGUE, SETTINGS, "quick", environment=self.environment)
            self.meddler = Meddler(self.fleet.address, self.fleet.provider_address, random.Random(self.dice.random()))
            await stack.enter_async_context(self.meddler.running())
            self.fleet.reach_provider_at(self.meddler.address)
            self.witness = Witness(self.fleet)
            clock = [sys.executable, "-m", "tools.shifted_clock", str(self.clock)]
            self.fleet.shard.argv[: len(BIGFLEET)] = [*(self.disk.prefix if self.disk else ()), *clock]
            self.guarded = losses.GuardedShard(self.folder, self.fleet.provider_address, self.environment)
            self.operators = {name: self._operator(name, clusters) for name, clusters in OPERATORS.items()}
            stack.callback(self._kill_all)
            self._tell_demand()
            await asyncio.to_thread(self.fleet.start)
            for program in (*self.operators.values(), self.guarded.program):
                program.start()
            await self.guarded.wait_ready()
            watching = asyncio.create_task(self._watch())
            stack.callback(watching.cancel)
            await self._calm("start")
            for number in range(events):
                await self._event(self._next())
                await asyncio.sleep(self.dice.uniform(0.0, 0.4))
                if number % EVENTS_PER_CALM == EVENTS_PER_CALM - 1 or number == events - 1:
                    await self._calm(f"event {number + 1}")
                if watching.done():
                    watching.result()
            await self._judge()

    def _operator(self, name: str, clusters: tuple[str, ...]) -> Program:
        argv = [sys.executable, "-m", "tools.chaos_operator", "--shard", self.meddler.address]
        argv += ["--folder", str(self.folder)]
        for cluster in clusters:
            argv += ["--cluster", cluster]
        return Program(name, argv, self.folder, self.environment)

    def _kill_all(self) -> None:
        for program in self._programs():
            if program.alive:
                program.kill()

    @property
    def clock(self) -> Path:
        """By how many seconds the shard's clock is ahead."""
        return self.folder / "clock"

    def lose_data(self) -> None:
        """Nothing is left of the shard's own memory."""
        if self.disk is not None:
            self.disk.clear()
        else:
            shutil.rmtree(self.folder / "data", ignore_errors=True)

    # ── events ───────────────────────────────────────────────────────────────────────────────────────────────

    def _next(self) -> str:
        """By its weight, unless some were asked for: then those in turn."""
        if self.only:
            return self.only[len(self.history) % len(self.only)]
        return self.dice.choices(list(EVENTS), [weight for weight, _ in EVENTS.values()])[0]

    async def _event(self, name: str) -> None:
        self.done[name] += 1
        self.history.append(name)
        self._require_alive()
        await EVENTS[name][1](self)
        self._require_alive()

    async def kill_shard(self) -> None:
        await asyncio.to_thread(self.fleet.shard.kill)
        self.fleet.shard.start()

    async def kill_provider(self) -> None:
        await asyncio.to_thread(self.fleet.provider.kill)
        await asyncio.sleep(self.dice.uniform(0, 0.5))
        self.fleet.provider.start()

    async def empty_provider(self) -> None:
        """It forgets everything: what it sold, whom it bound, which fences it saw."""
        await asyncio.to_thread(self.fleet.provider.kill)
        for path in self.folder.glob(f"{self.fleet.state_file.name}*"):
            path.unlink()
        self.fleet.provider.start()

    async def kill_operator(self) -> None:
        await self._restart_operator(self.dice.choice(list(self.operators)), self.dice.uniform(0, 0.5))

    async def _restart_operator(self, name: str, after: float = 0.0) -> None:
        program = self.operators[name]
        await asyncio.to_thread(program.kill)
        for cluster in OPERATORS[name]:
            (self.folder / f"{cluster}.heard.json").unlink(missing_ok=True)
        await asyncio.sleep(after)
        program.start()

    async def hang_operator(self) -> None:
        program = self.dice.choice(list(self.operators.values()))
        program.hang()
        await asyncio.sleep(self.dice.uniform(0.5, 2.0))
        program.go_on()

    async def hang_provider(self) -> None:
        self.fleet.provider.hang()
        await asyncio.sleep(self.dice.uniform(0.2, 1.5))
        self.fleet.provider.go_on()

    async def meddle(self) -> None:
        """Drop, repeat and delay frames and calls for a while, under changing demand."""
        self.meddler.trouble = self.dice.uniform(0.3, 0.7)
        await self.swing_demand()
        await asyncio.sleep(self.dice.uniform(0.3, 1.5))
        self.meddler.trouble = 0.0

    async def swing_demand(self) -> None:
        self.demand["swing-1"] = ("swing", self.dice.randint(0, 8), 10)
        self.demand["pool-high"] = ("pool", self.dice.randint(0, 4), HIGH)
        self.demand["pool-low"] = ("pool", self.dice.randint(0, 4), LOW)
        self._tell_demand()

    async def jump_clock(self) -> None:
        """Somebody sets the clock of the shard's host, sometimes just before the shard dies."""
        ahead = self.dice.choice((-86_400, -3600, -90, -5, 0, 5, 90, 3600, 86_400))
        draft = self.folder / "clock.draft"
        draft.write_text(str(ahead))
        draft.replace(self.clock)
        if self.dice.random() < 0.5:
            await self.kill_shard()

    async def lose_hosts(self) -> None:
        # Not of the pool: an owned host that is lost is gone for good, and the pool is small.
        kind = self.dice.choice(("steady", "swing"))
        await self._inject({"do": "lose-hosts", "offering": kind, "count": self.dice.randint(1, 3)})

    async def break_machines(self) -> None:
        kind = self.dice.choice(("steady", "swing", "pool"))
        await self._inject({"do": "break", "offering": kind, "count": self.dice.randint(1, 2)})

    async def acknowledge_and_kill(self) -> None:
        """A switch whose acknowledgement arrived must hold in the next life."""
        self.rails = (self.dice.random() < 0.5, self.dice.random() < 0.5)
        if await self._set_rails(*self.rails):
            await self.kill_shard()
            await asyncio.to_thread(self.fleet.wait_ready)
            found = await self._set_rails(*self.rails, only_look=True)
            if found != self.rails:
                self.problems.append(f"forgotten: rails {self.rails} were acknowledged, the next life has {found}")
        await self._set_rails(False, False)

    async def replace_stream(self) -> None:
        """A second operator of a cluster takes its stream; the first comes back after its pause."""
        self.operators["operator-2"].hang()
        other = Program("intruder", self.operators["operator-2"].argv, self.folder, self.environment)
        other.start()
        await asyncio.sleep(self.dice.uniform(1.0, 2.0))
        await asyncio.to_thread(other.kill)
        await self._restart_operator("operator-2")

    async def _inject(self, command: dict[str, Any], *, harmful: bool = True) -> None:
        """Something happens in the pretend world; when nothing fits, nothing does."""
        try:
            answer = await send_command(self.fleet.control, command)
        except Exception:
            return  # the provider is dead at the moment
        if answer["ok"] and harmful:
            self.spoiled.update(machine.partition("-")[0] for machine in answer["machines"])

    async def _set_rails(self, paused: bool, dry_run: bool, *, only_look: bool = False) -> tuple[bool, bool] | None:
        rails = None if only_look else capacity_pb2.Rails(actuation_paused=paused, dry_run=dry_run)
        until = time.monotonic() + CALM_SECONDS
        while time.monotonic() < until:
            try:
                async with channel(self.fleet.address) as opened:
                    stub = shard_pb2_grpc.ShardAdminStub(opened)
                    answer = await stub.SetRails(capacity_pb2.SetRailsRequest(rails=rails), timeout=10)
                    return answer.effective.actuation_paused, answer.effective.dry_run
            except Exception:
                await asyncio.sleep(0.1)
        return None

    def _tell_demand(self) -> None:
        for cluster, (kind, pods, priority) in self.demand.items():
            self.peak[kind] = max(self.peak[kind], sum(p for k, p, _ in self.demand.values() if k == kind))
            draft = self.folder / f"{cluster}.demand.draft"
            draft.write_text(json.dumps([{"kind": kind, "pods": pods, "priority": priority}]))
            draft.replace(self.folder / f"{cluster}.demand.json")

    # ── calming down ─────────────────────────────────────────────────────────────────────────────────────────

    def _require_alive(self) -> None:
        for program in self._programs():
            if not program.alive:
                raise AssertionError(f"{program.name} died of itself: {program.tail(4000)}")

    def _programs(self) -> tuple[Program, ...]:
        return (self.fleet.shard, self.fleet.provider, self.guarded.program, *self.operators.values())

    async def _calm(self, when: str) -> None:
        """Leave it alone until everything agrees; a person repairs what the provider calls broken."""
        began = time.monotonic()
        what = ""
        while time.monotonic() - began < CALM_SECONDS:
            self._require_alive()
            for kind in ("steady", "swing", "pool"):
                await self._inject({"do": "repair", "offering": kind}, harmful=False)
            what = await self.witness.unsettled(self.demand, told_all=self._told_all())
            if not what:
                break
            await asyncio.sleep(0.2)
        else:
            await self.witness.write_down(self.folder / f"{when.replace(' ', '-')}.json")
            self.problems.append(f"after {when} ({', '.join(self.history[-EVENTS_PER_CALM:])}): {what}")
        self.calms.append(
            {
                "after": when,
                "seconds": round(time.monotonic() - began, 1),
                "files": {program.name: program.files() for program in self._programs()},
                "memory_mib": {program.name: round(program.resident() / 2**20) for program in self._programs()},
            }
        )

    def _told_all(self) -> bool:
        """Whether every cluster must know of its machines; of a frame lost on the way only a new stream hears."""
        return self.told_all or not self.meddler.done["shard frame dropped"]

    async def _watch(self) -> None:
        """All the time: never is more on its way into service than was ever wanted, except to replace what broke."""
        while True:
            listed = await self.witness.at_provider()
            broken = {machine.id for machine in listed if machine.state == FAILED}
            self.spoiled.update(machine.partition("-")[0] for machine in broken - self.broken)
            self.broken = broken if listed else self.broken
            for kind in ("steady", "swing"):
                # Idle ones may be drained ones that nobody took back in time, and Draining ones are on their way out.
                serving = sorted(m.id for m in listed if m.instance_type == kind and m.state in SERVING)
                if len(serving) > self.peak[kind] + self.spoiled[kind]:
                    self.problems.append(
                        f"bought twice: {len(serving)} machines of {kind} after {len(self.history)} events, "
                        f"never were more than {self.peak[kind]} wanted and {self.spoiled[kind]} broken: {serving}"
                    )
                    return
            await asyncio.sleep(0.1)

    # ── judging ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _judge(self) -> None:
        """New streams hear the truth; then look at what the run has used up."""
        for name in self.operators:
            await self._restart_operator(name)
        self.told_all = True
        await self._calm("the end, with new streams")
        if not self.calms[-1]["seconds"] < CALM_SECONDS:
            return
        epochs = [line["epoch"] for line in self.fleet.shard.lines("listening", every_life=True)]
        if any(later <= earlier for earlier, later in pairwise(epochs)):
            self.problems.append(f"forgotten: the epochs of the shard's lives are {epochs}")
        for name in ("shard", "provider", "guarded", "operator-1", "operator-2"):
            files = [calm["files"][name] for calm in self.calms]
            if files[-1] > files[0] + FILES_ALLOWED:
                self.problems.append(f"{name} has {files[-1]} open files, {files[0]} at the start")
            memory = [calm["memory_mib"][name] for calm in self.calms]
            if memory[-1] > memory[0] * 1.3 + MEMORY_ALLOWED / 2**20:
                self.problems.append(f"{name} takes {memory[-1]} MiB, {memory[0]} at the start")

    def report(self, events: int, seed: int, seconds: float) -> dict[str, Any]:
        return {
            "events": events,
            "seed": seed,
            "seconds": round(seconds, 1),
            "done": dict(sorted(self.done.items())),
            "not_possible_on_this_host": dict(self.skipped),
            "meddled": dict(sorted(self.meddler.done.items())),
            "lives": {"shard": self.fleet.shard.lives, "provider": self.fleet.provider.lives},
            "slowest_calm_seconds": max((calm["seconds"] for calm in self.calms), default=0.0),
            "files_first_and_last": self._first_and_last("files"),
            "memory_mib_first_and_last": self._first_and_last("memory_mib"),
            "problems": self.problems[:20],
            "verdict": "FAILED" if self.problems else "PASSED",
        }

    def _first_and_last(self, what: str) -> dict[str, list[int]]:
        ends = (self.calms[0][what], self.calms[-1][what]) if self.calms else ()
        return {name: [end[name] for end in ends] for name in (ends[0] if ends else ())}


EVENTS: dict[str, tuple[int, Callable[[Chaos], Awaitable[None]]]] = {
    "kill shard": (4, Chaos.kill_shard),
    "kill provider": (3, Chaos.kill_provider),
    "empty provider": (1, Chaos.empty_provider),
    "kill operator": (3, Chaos.kill_operator),
    "hang operator": (2, Chaos.hang_operator),
    "hang provider": (1, Chaos.hang_provider),
    "meddle": (5, Chaos.meddle),
    "swing demand": (4, Chaos.swing_demand),
    "lose hosts": (2, Chaos.lose_hosts),
    "break machines": (2, Chaos.break_machines),
    "acknowledge and kill": (1, Chaos.acknowledge_and_kill),
    "replace stream": (1, Chaos.replace_stream),
    "jump clock": (2, Chaos.jump_clock),
    "invisible machines": (3, losses.hide_machines),
    "sold out": (3, losses.sell_out),
    "lost data directory": (2, losses.lose_data_directory),
    "poisonous roll-up": (2, losses.send_poison),
    "expired certificate": (1, losses.expire_certificate),
    "full disk": (2, losses.fill_disk),
}


async def chaos(
    events: int, seed: int, folder: Path, *, compiled: bool = True, only: tuple[str, ...] = ()
) -> dict[str, Any]:
    """A whole run and its report; logs and journals stay in the folder."""
    run = Chaos(folder, random.Random(seed), {} if compiled else INTERPRETED, only=only)
    began = time.monotonic()
    try:
        await run.run(events)
    except Exception as error:
        run.problems.append(f"{type(error).__name__}: {error}")
    return run.report(events, seed, time.monotonic() - began)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", default=[], choices=list(EVENTS), help="these events in turn")
    parser.add_argument("--interpreted", action="store_true", help="without compiled kernels: starts at once")
    parser.add_argument("--folder", type=Path, help="keep logs and journals here")
    parser.add_argument("--json", default="", help="also write the report here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bigfleet-chaos-") as folder:
        kept = arguments.folder or Path(folder)
        report = asyncio.run(
            chaos(
                arguments.events,
                arguments.seed,
                kept,
                compiled=not arguments.interpreted,
                only=tuple(arguments.only),
            )
        )
    text = json.dumps(report, indent=2)
    print(text)
    if arguments.json:
        Path(arguments.json).parent.mkdir(parents=True, exist_ok=True)
        Path(arguments.json).write_text(text + "\n", encoding="utf-8")
    return 0 if report["verdict"] == "PASSED" else 1


if __name__ == "__main__":
    raise SystemExit(main())
