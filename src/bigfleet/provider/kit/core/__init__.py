"""A provider's machines as a pure state machine: `core.Lifecycle.handle` takes events and returns what to do. No store,
no socket, no clock.
"""
