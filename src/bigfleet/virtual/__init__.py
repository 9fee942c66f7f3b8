"""The virtual clock and its event queue, shared by the simulator and the fake provider. A leaf: it knows nothing of
fleets.
"""
