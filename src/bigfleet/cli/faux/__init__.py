"""Subcommands of `fauxctl`: scenarios, replays, soaks."""
