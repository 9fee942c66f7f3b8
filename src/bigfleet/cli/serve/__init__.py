"""Subcommands of `bigfleet`: processes that stay."""
