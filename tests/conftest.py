"""Loaded before any test module: bigfleet must be imported before grpc for TLS 1.3 to be the only version."""

import bigfleet  # noqa: F401
