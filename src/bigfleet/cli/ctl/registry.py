"""`bigfleetctl quotas` and `providers`: how bought capacity is divided among shards, and how providers are dialled."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bigfleet.cli.commands import MistakeError
from bigfleet.cli.ctl.coordinator_calls import Coordinators, coordinator_command
from bigfleet.wire import coordinator_pb2 as pb

quotas = typer.Typer(add_completion=False, no_args_is_help=True, help="Speculative slots per provider and region.")
providers = typer.Typer(add_completion=False, no_args_is_help=True, help="Providers that shards dial.")

Name = Annotated[str, typer.Argument(help="The provider's name.")]


@quotas.command("list")
@coordinator_command(watchable=True)
def list_quotas(coordinators: Coordinators) -> None:
    """List the slots each shard may draw, by provider and region."""
    found = coordinators.ask("ListQuotas", pb.ListQuotasRequest())
    if not coordinators.output.for_people:
        coordinators.show(found.allocations, lambda each: {})
        return
    rows = [(each, shard, slots) for each in found.allocations for shard, slots in sorted(each.per_shard.items())]
    coordinators.show(rows, _quota_row)


@quotas.command("set")
@coordinator_command()
def set_quota(
    coordinators: Coordinators,
    shares: Annotated[list[str], typer.Argument(metavar="SHARD=SLOTS...", help="What each shard may draw.")],
    provider: Annotated[str, typer.Option("--provider", help="The provider's name.")],
    region: Annotated[str, typer.Option("--region", help="The provider's region.")] = "",
) -> None:
    """Divide a provider's slots: `bigfleetctl quotas set --provider gcp --region eu shard-0=100 shard-1=50`."""
    divided = dict(map(_share, shares))
    allocation = pb.QuotaAllocation(provider=provider, region=region, per_shard=divided)
    coordinators.ask("SetQuota", pb.SetQuotaRequest(allocation=allocation))
    told = ", ".join(f"{shard} {slots}" for shard, slots in divided.items())
    coordinators.done(f"divided {provider} {region}: {told}", provider=provider, region=region, per_shard=divided)


@providers.command("list")
@coordinator_command(watchable=True)
def list_providers(coordinators: Coordinators) -> None:
    """List the providers shards are told to dial."""
    found = coordinators.ask("ListProviders", pb.ListProvidersRequest())
    coordinators.show(found.providers, _provider_row)


@providers.command("set")
@coordinator_command()
def set_provider(
    coordinators: Coordinators,
    name: Name,
    address: Annotated[str, typer.Option("--address", help="Where it is dialled.", metavar="HOST:PORT")],
    region: Annotated[str, typer.Option("--region", help="Its region.")] = "",
) -> None:
    """Add a provider or change how it is dialled: `bigfleetctl providers set gcp --address gcp.example:9000`."""
    entry = pb.ProviderEntry(name=name, address=address, region=region)
    coordinators.ask("UpsertProvider", pb.UpsertProviderRequest(provider=entry))
    coordinators.done(f"provider {name} is dialled at {address}", name=name, address=address, region=region)


@providers.command("remove")
@coordinator_command()
def remove_provider(coordinators: Coordinators, name: Name) -> None:
    """Take a provider out of the registry; its machines are not touched."""
    coordinators.ask("RemoveProvider", pb.RemoveProviderRequest(name=name))
    coordinators.done(f"removed provider {name}", removed=name)


def _share(text: str) -> tuple[str, int]:
    shard, equals, slots = text.partition("=")
    if not shard or not equals or not slots.isdecimal():
        raise MistakeError(f"share {text!r} is not understood; SHARD=SLOTS is accepted, such as shard-0=100")
    return shard, int(slots)


def _quota_row(row: tuple[pb.QuotaAllocation, str, int]) -> dict[str, Any]:
    allocation, shard, slots = row
    return {"PROVIDER": allocation.provider, "REGION": allocation.region, "SHARD": shard, "SLICE": slots}


def _provider_row(each: pb.ProviderEntry) -> dict[str, Any]:
    return {"PROVIDER": each.name, "ADDRESS": each.address, "REGION": each.region}
