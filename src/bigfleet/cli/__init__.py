"""The command lines: `bigfleet` runs the parts, `bigfleetctl` talks to them. Nothing here decides anything."""
