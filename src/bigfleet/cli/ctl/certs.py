"""`bigfleetctl certs`: a development authority and the role certificates BigFleet's parts show each other."""

from pathlib import Path
from typing import Annotated

import typer

from bigfleet.cli.output import Output, OutputOption, print_record
from bigfleet.transport import authority
from bigfleet.transport.identity import NAMED, Identity, Kind

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""Make a development authority and role certificates.

Every part of BigFleet proves who it is with a certificate that carries one bigfleet:// identity. Begin with `init`,
then issue one certificate per part and pass it to the part's --tls-cert, --tls-key and --tls-ca.

    bigfleetctl certs init
    bigfleetctl certs issue shard shard-0
    bigfleetctl certs issue shard shard-1 --dns shard-1.example.org --ip 10.0.0.7
    bigfleetctl certs issue cluster prod-1
    bigfleetctl certs issue admin

Parts that are dialled carry the names and addresses of this host unless --dns or --ip gives others. In production
bring your own authority; leaves need the same names.""",
)

# Roles that others dial; an admin certificate also serves coordinator replicas.
DIALLED = (Kind.SHARD, Kind.PROVIDER, Kind.ADMIN)
Directory = Annotated[Path, typer.Option("--dir", help="Holds the authority and everything it issues.")]
Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]


@app.command()
def init(
    directory: Directory = Path("certs"),
    name: Annotated[str, typer.Option(help="Common name of the authority.")] = "BigFleet development CA",
    days: Annotated[int, typer.Option(min=1, max=36500, help="How long the authority is valid.")] = 3650,
    force: Force = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create the authority: ca.crt to hand out, ca.key to keep (mode 0600).

    Replacing an authority with --force makes every certificate it issued worthless.
    """
    issued = authority.create_authority(directory, name=name, days=days, force=force)
    print_record(
        {"ca": str(issued.certificate), "key": str(issued.key), "not_after": issued.not_after.isoformat()}, output
    )


@app.command()
def issue(
    role: Annotated[
        Kind,
        typer.Argument(
            help="cluster: an operator. shard: a shard. provider: a machine provider. "
            "admin: bigfleetctl and coordinator replicas. readonly: dashboards."
        ),
    ],
    name: Annotated[
        str, typer.Argument(help="Cluster id, shard id or provider name; none for admin and readonly.")
    ] = "",
    dns: Annotated[list[str] | None, typer.Option(help="DNS name this part is dialled by; repeat for several.")] = None,
    ip: Annotated[list[str] | None, typer.Option(help="IP address this part is dialled by; repeatable.")] = None,
    days: Annotated[int, typer.Option(min=1, max=3650, help="How long the certificate is valid.")] = 365,
    directory: Directory = Path("certs"),
    force: Force = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Issue a certificate and key (mode 0600) for one part.

    Parts that others dial (shards, coordinators, providers) carry the names they are dialled by: those given with --dns
    and --ip, else the names and addresses of this host. Running processes pick a replaced certificate up without a
    restart.
    """
    if role in NAMED and not name:
        raise typer.BadParameter(f"{role} needs a name, for example: bigfleetctl certs issue {role} my-{role}")
    identity = Identity(role, name)
    names, addresses = dns or [], ip or []
    if role in DIALLED and not names and not addresses:
        names, addresses = authority.this_host()
    issued = authority.issue(directory, identity, dns=names, addresses=addresses, days=days, force=force)
    ca = directory / authority.CA_CERTIFICATE
    print_record(
        {
            "identity": identity.uri,
            "names": [*names, *addresses] if output is Output.JSON else ", ".join([*names, *addresses]) or "-",
            "cert": str(issued.certificate),
            "key": str(issued.key),
            "ca": str(ca),
            "not_after": issued.not_after.isoformat(),
        },
        output,
    )
    if output.for_people:
        typer.echo(f"\nuse: --tls-cert {issued.certificate} --tls-key {issued.key} --tls-ca {ca}")
