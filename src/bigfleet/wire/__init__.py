"""Generated protobuf and gRPC modules of package bigfleet.v1alpha1, and nothing else.

Written by `make generate` from proto/bigfleet/v1alpha1; never edit by hand. Runtimes import these
modules at their edge; the pure cores must not.
"""
