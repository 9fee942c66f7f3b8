"""Flags that mean the same on every binary, declared once: TLS files, plaintext, logs.

Commands take them as parameters (`cert: TlsCert = ""`) and build `TlsFiles(cert, key, ca)`, which refuses a partial
set, and call `logs.configure` first thing when they serve.
"""

from typing import Annotated

import typer

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
