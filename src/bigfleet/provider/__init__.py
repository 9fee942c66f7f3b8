"""Everything about capacity providers: client (shard side), kit (author side), fake, conformance."""
