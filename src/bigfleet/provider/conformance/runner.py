"""One run from config to results: lanes in order, probing, scheduling, and the restart between two lives.

Independent behaviours run side by side on different machines; exclusive ones run alone after them. Everything
that must be judged is judged here once; reports and terminals only read the results.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from bigfleet.provider.conformance.behaviours import durability
from bigfleet.provider.conformance.config import Config, UsageError
from bigfleet.provider.conformance.pool import Pool
from bigfleet.provider.conformance.process import BootError, Launcher
from bigfleet.provider.conformance.registry import Behaviour, Capability, Lane, catalogue
from bigfleet.provider.conformance.reply import Code
from bigfleet.provider.conformance.states import State
from bigfleet.provider.conformance.subject import Subject
from bigfleet.provider.conformance.target import Target
from bigfleet.provider.conformance.trial import Borrow, Capabilities, Limits, Restart, Trial
from bigfleet.provider.conformance.verdicts import Breach, Result, Skip, SkipKind, Status

NewTrial = Callable[[str], Trial]

_SUITE_SLOTS = 256
_MOST_LEASED = 96
_CALLS_SHOWN = 4


class Listener(Protocol):
    """Who wants to watch a run."""

    def lane_started(self, lane: str, count: int) -> None: ...
    def behaviour_started(self, behaviour: Behaviour) -> None: ...
    def behaviour_finished(self, result: Result) -> None: ...


async def run(
    config: Config, listener: Listener, only: frozenset[str] = frozenset(), baseline: bool = True
) -> list[Result]:
    """Run everything the profiles require and return one result per behaviour of the catalogue."""
    results = {b.id: _not_run(b, config) for b in catalogue()}
    due = [b for b in catalogue() if is_required(b, config.profiles) and (baseline or not b.is_baseline)]
    chosen = [b for b in due if not only or b.id in only]
    for behaviour in due:
        if behaviour not in chosen:
            results[behaviour.id] = _skipped(behaviour, Skip("not selected for this run", SkipKind.NOT_SELECTED))
    runner = _Runner(config, listener)
    for lane in ((Lane.BASELINE, Lane.SUITE), (Lane.FAULT,), (Lane.DURABLE,), (Lane.SCALE,)):
        members = [b for b in chosen if b.lane in lane]
        if members:
            for result in await runner.run_lane(lane[-1], members):
                results[result.behaviour.id] = result
    return list(results.values())


def is_required(behaviour: Behaviour, profiles: Iterable[str]) -> bool:
    """The baseline is always due; a behaviour is due when any of its profiles was claimed."""
    return behaviour.is_baseline or not set(behaviour.profiles).isdisjoint(profiles)


class _Runner:
    def __init__(self, config: Config, listener: Listener) -> None:
        self._config = config
        self._listener = listener
        self._limits = Limits.of(config)
        self._capabilities: Capabilities | None = None

    async def run_lane(self, lane: Lane, members: list[Behaviour]) -> list[Result]:
        """Judge the lane's behaviours; what a small pool could not serve gets a fresh provider, if we can start one."""
        self._listener.lane_started(lane.name.lower(), len(members))
        settled: list[Result] = []
        while True:
            round_results = await self._one_life(lane, members)
            starved = [r.behaviour for r in round_results if r.skip is SkipKind.INVENTORY]
            again = bool(starved) and len(starved) < len(members) and self._launcher(lane) is not None
            settled += [r for r in round_results if not again or r.skip is not SkipKind.INVENTORY]
            if not again:
                for result in settled:
                    if result.skip is SkipKind.INVENTORY:
                        self._listener.behaviour_finished(result)
                return settled
            members = starved

    async def _one_life(self, lane: Lane, members: list[Behaviour]) -> list[Result]:
        launcher = self._launcher(lane)
        if launcher is None and lane is Lane.DURABLE:
            skip = Skip("no start command is configured to restart the provider with", SkipKind.NOT_CONFIGURED)
            return [self._finished(_skipped(b, skip)) for b in members]
        try:
            target = Target(await launcher.boot() if launcher else self._config.target, self._config.tls)
            try:
                return await self._on(lane, members, target, launcher)
            finally:
                await target.close()
        finally:
            if launcher is not None:
                await launcher.close()

    def _launcher(self, lane: Lane) -> Launcher | None:
        """The suite prefers a running target; lanes that need a life of their own prefer a fresh process."""
        config = self._config
        own, slots = {
            Lane.FAULT: (config.fault.start, config.fault.slots),
            Lane.DURABLE: (config.durable.start, config.durable.slots),
            Lane.SCALE: (config.scale.start, config.scale.slots),
        }.get(lane, ("", _SUITE_SLOTS))
        command = own or config.start
        if not command or (lane is Lane.SUITE and config.target):
            return None
        return Launcher(config, command, slots, self._limits.boot)

    async def _on(
        self, lane: Lane, members: list[Behaviour], target: Target, launcher: Launcher | None
    ) -> list[Result]:
        shared: dict[str, object] = {}

        def new_trial(label: str) -> Trial:
            trial = Trial(self._config, target, self._capabilities or Capabilities(), label)
            trial.shared = shared
            trial.provider_log = launcher.log if launcher else None
            trial.command_values = launcher.values() if launcher else {"addr": target.address}
            return trial

        async def restart() -> None:
            assert launcher is not None
            await launcher.kill()
            if await launcher.answers():
                # What was not killed has not forgotten anything: surviving that would prove nothing.
                raise Breach(
                    f"the provider still answers at {launcher.address} after it was killed; the start command must run "
                    "the provider itself, or `stop` must end it"
                )
            try:
                await target.redirect(await launcher.boot())
            except BootError as error:
                raise Breach(f"the provider did not come back after kill -9: {error}") from error

        pool = await self._open_pool(new_trial, target)
        if lane is Lane.DURABLE:
            trial = new_trial("prepare")
            trial.borrow = _borrower(trial, pool, [])
            try:
                history = shared["history"] = await durability.prepare(trial)
                await restart()
                listed = (await trial.listing()).machines
                shared["repeated-after-restart"] = await durability.repeat(trial, history)
            except (Breach, Skip) as stop:
                return [self._finished(_verdict(b, trial, stop, 0.0)) for b in members]
            shared["inventory-after-restart"] = {m.id: State(m.state) for m in listed}
            pool = await self._open_pool(new_trial, target)
        try:
            return await self._schedule(members, pool, new_trial, restart if launcher else None)
        finally:
            await pool.restore()

    async def _open_pool(self, new_trial: NewTrial, target: Target) -> Pool:
        pool = Pool(self._config, new_trial, _MOST_LEASED)
        try:
            await pool.discover()
        except Breach as breach:
            details = breach.exchange.details if breach.exchange else ""
            raise UsageError(
                f"the provider at {target.address} cannot be listed: {details or breach.problem}"
            ) from breach
        if self._capabilities is None:
            self._capabilities = await _probe(self._config, new_trial, pool)
        pool.capabilities = self._capabilities
        return pool

    async def _schedule(
        self, members: list[Behaviour], pool: Pool, new_trial: NewTrial, restart: Restart | None
    ) -> list[Result]:
        gate = asyncio.Semaphore(max(1, self._config.pool.jobs))

        async def one(behaviour: Behaviour) -> Result:
            async with gate:
                return await self._judge(behaviour, pool, new_trial(behaviour.id), restart)

        results = list(await asyncio.gather(*(one(b) for b in members if not b.exclusive)))
        for behaviour in members:
            if behaviour.exclusive:
                results.append(await self._judge(behaviour, pool, new_trial(behaviour.id), restart))
        return results

    async def _judge(self, behaviour: Behaviour, pool: Pool, trial: Trial, restart: Restart | None) -> Result:
        borrowed: list[str] = []
        trial.borrow = _borrower(trial, pool, borrowed)
        if restart is not None:
            trial.kill_and_restart = restart
        stop: Breach | Skip | None = None
        begun = time.monotonic()
        try:
            _gate_capability(behaviour, trial.capabilities)
            trial.machines = await pool.lease(trial, behaviour.slots, behaviour.start)
            self._listener.behaviour_started(behaviour)
            begun = time.monotonic()
            async with asyncio.timeout(self._limits.behaviour):
                await behaviour.body(trial)
        except (Breach, Skip) as raised:
            stop = raised
        except TimeoutError:
            stop = Breach("the behaviour did not finish; calls or transitions take far too long")
        except UsageError as error:
            stop = Skip(str(error), SkipKind.NOT_CONFIGURED)
        result = self._finished(_verdict(behaviour, trial, stop, time.monotonic() - begun))
        await pool.release([m.id for m in trial.machines] + borrowed)
        return result

    def _finished(self, result: Result) -> Result:
        # Lack of machines may be cured by another round; it is news only once it is final.
        if result.skip is not SkipKind.INVENTORY:
            self._listener.behaviour_finished(result)
        return result


def _borrower(trial: Trial, pool: Pool, borrowed: list[str]) -> Borrow:
    async def borrow(state: State) -> Subject:
        (subject,) = await pool.lease(trial, (1, 1), state)
        borrowed.append(subject.id)
        return subject

    return borrow


def _gate_capability(behaviour: Behaviour, capabilities: Capabilities) -> None:
    if behaviour.capability is Capability.DELETE and not capabilities.delete:
        raise Skip("Delete is UNIMPLEMENTED on this provider")
    if behaviour.capability is Capability.SINCE_REVISION and not capabilities.since_revision:
        raise Skip("List keeps no revision on this provider")


async def _probe(config: Config, new_trial: NewTrial, pool: Pool) -> Capabilities:
    """Find out by one throw-away life what the provider can do: a revision that moves, a Delete that works."""
    trial = new_trial("probe")
    fallback = Capabilities(delete="bare-metal" not in config.profiles, since_revision=True)
    pool.capabilities = fallback
    try:
        # Only an uncapped List carries the head: a capped one may carry a continuation.
        before = (await trial.listing()).revision
        (subject,) = await pool.lease(trial, (1, 1), State.SPECULATIVE)
    except (Breach, Skip):
        return fallback
    try:
        await subject.to_idle()
        after = (await trial.listing()).revision
        reply = await subject.delete()
        if reply.ok:
            await subject.settle(State.SPECULATIVE)
        return Capabilities(
            delete=reply.code is not Code.UNIMPLEMENTED, since_revision=bool(before) and before != after
        )
    except Breach:
        return fallback
    finally:
        await pool.release([subject.id])


def _verdict(behaviour: Behaviour, trial: Trial, stop: Breach | Skip | None, took: float) -> Result:
    if isinstance(stop, Skip):
        result = _skipped(behaviour, stop)
        result.seconds = took
        return result
    if isinstance(stop, Breach):
        return Result(
            behaviour,
            Status.FAILED,
            took,
            problem=trial.transcript.scrub(stop.problem),
            contract=stop.contract or behaviour.explanation,
            calls=trial.transcript.tail(_CALLS_SHOWN, stop.exchange),
        )
    return Result(behaviour, Status.PASSED, took, note=trial.note)


def _skipped(behaviour: Behaviour, skip: Skip) -> Result:
    return Result(behaviour, Status.SKIPPED, skip=skip.kind, note=skip.reason)


def _not_run(behaviour: Behaviour, config: Config) -> Result:
    if is_required(behaviour, config.profiles):
        return Result(behaviour, Status.NOT_IMPLEMENTED)
    return _skipped(behaviour, Skip("no claimed profile requires it"))
