"""The entry point of `fauxctl`: loads its commands, and turns refusals into one line and exit code 1."""

import sys

import typer

from bigfleet.cli.commands import CommandError


def main() -> None:
    try:
        from bigfleet.cli.faux import replay as fauxctl_replay
        from bigfleet.cli.faux import scenarios as fauxctl_commands
        from bigfleet.cli.faux import soak as fauxctl_soak
        from bigfleet.shard.recording.format import RecordingError
        from bigfleet.sim.document.document import DocumentError
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "bigfleet":
            raise
        sys.exit(f"error: `fauxctl` needs {missing}: pip install 'bigfleet[sim]'")
    app = fauxctl_commands.app
    app.command("replay")(fauxctl_replay.replay)
    app.command("soak")(fauxctl_soak.soak)
    try:
        app(prog_name="fauxctl")
    except (CommandError, DocumentError, RecordingError) as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        typer.echo(f"error: {where}{error.strerror or error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
