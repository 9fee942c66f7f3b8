"""Makes the steps of a scenario happen: each is carried out at its time, and undone when it has an end.

Where two of a kind overlap, it is over when the last of them is.

Talks to the world only through what a real one offers: the fake's commands, the port's weather, streams and processes.
A step that finds nothing to act on is noted and passed over, because random scenarios contain such steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from functools import partial
from typing import Any

from bigfleet.model.machine import MachineState
from bigfleet.provider.fake import commands
from bigfleet.provider.fake.catalogue import RateLimit
from bigfleet.provider.fake.commands import Choice
from bigfleet.provider.fake.faults import Effect, Fault
from bigfleet.provider.fake.fields import CatalogueError
from bigfleet.provider.kit.core.records import Kind, MachineRecord
from bigfleet.shard.contract import events as ev
from bigfleet.sim.scenario import steps as do
from bigfleet.sim.scenario.supply import OFFER_LABEL
from bigfleet.sim.world.generators import Generators, Stage
from bigfleet.sim.world.port import ProviderPort
from bigfleet.sim.world.site import Site
from bigfleet.virtual.kernel import SECOND, Kernel

Note = Callable[[str, dict[str, object]], None]
# How often somebody looks whether a moment that a step waits for has come.
_GLANCE = SECOND // 10


class Injections:
    """The steps of one run."""

    def __init__(
        self,
        kernel: Kernel,
        sites: list[Site],
        generators: Generators,
        stages: dict[str, tuple[Site, Stage]],
        note: Note,
    ) -> None:
        self._kernel = kernel
        self._sites = sites
        self._generators = generators
        self._stages = stages
        self._note = note
        self._under_way: Counter[object] = Counter()
        self._actions: dict[type, Callable[[Any], None]] = {
            do.Scale: self._scale,
            do.Withdraw: lambda step: self._generators.withdraw(self._chosen(step.clusters)),
            do.RollingRestart: self._restart,
            do.SpotWave: self._spot_wave,
            do.ZoneLoss: self._zone_loss,
            do.LoseHosts: self._lose_hosts,
            do.BreakMachines: self._break,
            do.FailNext: self._fail_next,
            do.FailureRate: self._failure_rate,
            do.RateLimitStorm: self._storm,
            do.Stockout: self._stockout,
            do.SmallerHosts: self._smaller_hosts,
            do.ProviderOutage: self._outage,
            do.ShardRestart: self._shard_restart,
            do.OperatorDisconnect: self._disconnect,
            do.EmptyRollup: self._empty_rollup,
            do.Nonsense: self._nonsense,
            do.Price: self._price,
            do.Quota: self._quota,
            do.Rails: self._rails,
        }

    def plan(self, steps: Iterable[do.Step]) -> None:
        for step in steps:
            self._kernel.at(step.at, lambda step=step: self._carry_out(step))  # type: ignore[misc]

    def _carry_out(self, step: do.Step) -> None:
        self._note(step.TAG[1], _facts(step))
        self._actions[type(step)](step)

    # ---------------------------------------------------------------------------------------------------------- demand

    def _scale(self, step: do.Scale) -> None:
        self._generators.scale(step.workload, self._chosen(step.clusters), step.replicas, step.factor)

    def _restart(self, step: do.RollingRestart) -> None:
        self._generators.restart(step.workload, self._chosen(step.clusters), step.surge, step.pause)

    def _chosen(self, clusters: tuple[str, ...]) -> list[Stage]:
        return [stage for name, (_, stage) in self._stages.items() if not clusters or name in clusters]

    # ---------------------------------------------------------------------------------------------------------- hosts

    def _spot_wave(self, step: do.SpotWave) -> None:
        choice = Choice(offering=step.offer, zone=step.zone, fraction=step.fraction)
        self._inject_all(commands.InterruptSpot(choice))

    def _zone_loss(self, step: do.ZoneLoss) -> None:
        def over() -> None:
            self._note("zone-back", {"zone": step.zone})
            self._inject_all(commands.OpenZone(step.zone))

        self._during(("zone", step.zone), step.for_, lambda: self._inject_all(commands.CloseZone(step.zone)), over)

    def _lose_hosts(self, step: do.LoseHosts) -> None:
        for port, machine in self._pick(step.count, step.cluster, step.offer, step.zone):
            self._inject(port, commands.LoseHosts(Choice(machine=machine)))

    def _break(self, step: do.BreakMachines) -> None:
        chosen = self._pick(step.count, step.cluster, step.offer, "")
        for port, machine in chosen:
            self._inject(port, commands.BreakMachines(Choice(machine=machine)))

        def repair() -> None:
            for port, machine in chosen:
                self._inject(port, commands.RepairMachines(Choice(machine=machine)))

        if step.repaired_after is not None:
            self._kernel.after(step.repaired_after, repair)

    def _pick(self, count: int, cluster: str, offer: str, zone: str) -> list[tuple[ProviderPort, str]]:
        def fits(record: MachineRecord) -> bool:
            if record.host is None or record.state == MachineState.FAILED:
                return False
            if cluster and not (record.cluster == cluster and record.state == MachineState.CONFIGURED):
                return False
            if offer and record.labels.get(OFFER_LABEL) != offer:
                return False
            return not zone or record.zone == zone

        found = [
            (port, record.id)
            for port in self._ports()
            for record in sorted(port.provider.core.machines.values(), key=lambda record: record.id)
            if fits(record)
        ]
        return found[:count]

    # ------------------------------------------------------------------------------------------------------- providers

    def _fail_next(self, step: do.FailNext) -> None:
        effect = Effect.HANG if step.hang else Effect.FAIL
        fault = Fault(Kind(step.transition), effect, machine=step.machine, error=step.error)
        if step.machine and not any(step.machine in port.provider.core.machines for port in self._ports()):
            self._note("no-effect", {"why": f"there is no machine {step.machine!r}"})
        self._inject_all(commands.FaultNext(fault, step.count))

    def _failure_rate(self, step: do.FailureRate) -> None:
        self._inject_all(commands.SetFailureRate(Kind(step.transition), step.rate))

    def _stockout(self, step: do.Stockout) -> None:
        rule = Fault(Kind.CREATE, Effect.FAIL, label=f"{OFFER_LABEL}={step.offer}", error="insufficient capacity")

        def begin() -> None:
            for port in self._ports():
                port.provider.cloud.faults.rules.append(rule)

        def over() -> None:
            self._note("stock-back", {"offer": step.offer})
            for port in self._ports():
                port.provider.cloud.faults.rules.remove(rule)
            # The failed attempts, if there were any, are cleaned up: their slots are for sale again.
            self._inject_all(commands.RepairMachines(Choice(offering=step.offer)), noted=False)

        self._during(("stock", step.offer), step.for_, begin, over)

    def _smaller_hosts(self, step: do.SmallerHosts) -> None:
        has = tuple(sorted(step.allocatable.items()))
        rule = Fault(Kind.CREATE, Effect.SMALLER, label=f"{OFFER_LABEL}={step.offer}", allocatable=has)
        books = [port.provider.cloud.faults.rules for port in self._ports()]

        def begin() -> None:
            for rules in books:
                rules.append(rule)

        def over() -> None:
            self._note("hosts-as-offered", {"offer": step.offer})
            for rules in books:
                rules.remove(rule)

        self._during(("smaller", step.offer), step.for_, begin, over)

    def _storm(self, step: do.RateLimitStorm) -> None:
        limit = RateLimit(step.per_second, max(1, int(step.per_second)), fail=True)
        for port in self._ports(step.provider):
            begin = partial(port.begin_storm, limit, bare=step.bare)
            self._during(("storm", id(port)), step.for_, begin, port.end_storm)

    def _outage(self, step: do.ProviderOutage) -> None:
        for port in self._ports(step.provider):
            self._during(
                ("out", id(port)), step.for_, partial(setattr, port, "out", True), partial(setattr, port, "out", False)
            )

    def _price(self, step: do.Price) -> None:
        given = {"price_per_hour": step.price_per_hour, "interruption_probability": step.interruption_probability}
        facts: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        for port in self._ports():
            provider = port.provider
            offerings = [
                replace(each, **facts) if each.labels.get(OFFER_LABEL) == step.offer else each
                for each in provider.catalogue.offerings
            ]
            # In the catalogue itself, so that slots which come back later come back at the new price.
            provider.catalogue = provider.cloud.catalogue = replace(provider.catalogue, offerings=tuple(offerings))
            changed = [
                replace(instance, host=record.host)
                for record in provider.core.machines.values()
                if record.labels.get(OFFER_LABEL) == step.offer
                and (instance := provider.catalogue.instance(record.id)) is not None
            ]
            if changed:
                provider.describe(*changed)

    def _quota(self, step: do.Quota) -> None:
        command: commands.Command
        if step.withdraw:
            command = commands.ShrinkQuota(Choice(offering=step.offer, count=step.withdraw))
        else:
            command = commands.RestoreQuota(Choice(offering=step.offer))
        self._inject_all(command)

    def _ports(self, provider: str = "") -> list[ProviderPort]:
        return [port for site in self._sites for name, port in sorted(site.ports.items()) if provider in ("", name)]

    def _inject_all(self, command: commands.Command, *, noted: bool = True) -> None:
        """Tell every provider; a command of which none had any use is noted."""
        complaints = [complaint for port in self._ports() if (complaint := self._told(port, command))]
        if noted and len(complaints) == len(self._ports()):
            self._note("no-effect", {"why": complaints[0]})

    def _inject(self, port: ProviderPort, command: commands.Command) -> None:
        if complaint := self._told(port, command):
            self._note("no-effect", {"why": complaint})

    def _told(self, port: ProviderPort, command: commands.Command) -> str:
        try:
            port.provider.inject(command)
        except CatalogueError as error:
            return str(error)
        return ""

    # ------------------------------------------------------------------------------------------- processes and streams

    def _shard_restart(self, step: do.ShardRestart) -> None:
        chosen = [site for site in self._sites if step.shard in ("", site.name)]
        if step.amid is not None:
            self._once_amid(step, chosen)
            return
        for site in chosen:
            begin = partial(site.crash, lose_journal=step.lose_journal)
            self._during(("down", site.name), step.down, begin, site.restart)
        self._kernel.after(step.down, lambda: self._note("shard-back", {"shard": step.shard} if step.shard else {}))

    def _once_amid(self, step: do.ShardRestart, chosen: list[Site]) -> None:
        """Restart those that are in the middle of a move as soon as one is."""
        caught = [site for site in chosen if site.host.up and site.is_amid(step.amid)]
        if not caught:
            self._kernel.after(_GLANCE, lambda: self._once_amid(step, chosen))
            return
        for site in caught:
            self._note("caught", {"shard": site.name, "amid": step.amid})
            self._shard_restart(replace(step, shard=site.name, amid=None))

    def _disconnect(self, step: do.OperatorDisconnect) -> None:
        for name, site in self._members(step.clusters):
            self._during(("cut", name), step.for_, partial(site.cut, name), partial(site.heal, name))

    def _empty_rollup(self, step: do.EmptyRollup) -> None:
        for name, site in self._members(step.clusters):
            self._during(("mute", name), step.for_, partial(site.mute, name, True), partial(site.mute, name, False))

    def _nonsense(self, step: do.Nonsense) -> None:
        for name, site in self._members(step.clusters):
            begin = partial(site.talk_nonsense, name, step.says)
            self._during(("nonsense", name), step.for_, begin, partial(site.talk_nonsense, name, None))

    def _rails(self, step: do.Rails) -> None:
        for site in self._sites:
            site.host.post(ev.RailsSet(paused=step.paused, dry_run=step.dry_run, who="scenario"))

    def _during(self, what: object, lasts: int, begin: Callable[[], None], over: Callable[[], None]) -> None:
        self._under_way[what] += 1
        if self._under_way[what] == 1:
            begin()

        def end() -> None:
            self._under_way[what] -= 1
            if not self._under_way[what]:
                over()

        self._kernel.after(lasts, end)

    def _members(self, clusters: tuple[str, ...]) -> list[tuple[str, Site]]:
        return [(name, site) for name, (site, _) in self._stages.items() if not clusters or name in clusters]


def _facts(step: do.Step) -> dict[str, object]:
    """What the script says, without what it leaves open."""
    given = [each for each in fields(step) if each.name != "at" and getattr(step, each.name) not in ("", (), None)]
    facts = {each.name.rstrip("_"): (getattr(step, each.name), each.default) for each in given}
    return {name: value for name, (value, default) in facts.items() if value is not False or default is not False}
