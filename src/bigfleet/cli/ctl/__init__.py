"""Subcommands of `bigfleetctl`: questions and switches for what runs."""
