"""Flags that mean the same on every binary, declared once: TLS files, plaintext, logs.

Commands take them as parameters (`cert: TlsCert = ""`) and build `TlsFiles(cert, key, ca)`, which refuses a partial
set, and call `logs.configure` first thing when they serve.
"""

from typing import Annotated

import typer

from bigfleet.duration import UNITS, nanoseconds
from bigfleet.transport.logs import LogFormat

TlsCert = Annotated[
    str, typer.Option("--tls-cert", help="Own certificate chain, PEM. Re-read when it changes.", metavar="FILE")
]
TlsKey = Annotated[
    str, typer.Option("--tls-key", help="Key of --tls-cert, PEM. Re-read when it changes.", metavar="FILE")
]
TlsCa = Annotated[str, typer.Option("--tls-ca", help="Authority that peers are verified against, PEM.", metavar="FILE")]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Allow plaintext beyond this machine. Identities are not checked then.")
]
LogFormatOption = Annotated[
    LogFormat, typer.Option("--log-format", help="auto is text on a terminal and json elsewhere.")
]
LogLevel = Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.", metavar="LEVEL")]


def off(address: str) -> str:
    """An address that may be switched off: `0` means the same as leaving it empty."""
    return "" if address == "0" else address


class Seconds(float):
    """A duration that help shows as people type it."""

    def __str__(self) -> str:
        return f"{float(self):g}s"


TEN_SECONDS = Seconds(10)
HALF_A_MINUTE = Seconds(30)
A_MINUTE = Seconds(60)


def duration(text: str | float) -> Seconds:
    """Reads `30s`, `1.5m`, `250ms` or a bare number of seconds."""
    found = nanoseconds(str(text), bare="s")
    if found is None:
        raise typer.BadParameter(f"{str(text)!r} is not a duration; write 250ms, 30s, 2m, 1h or 0")
    return Seconds(found / UNITS["s"])
