"""What the coordinator decides, without I/O or clock: state, ownership, transfers, instructions and the rebalancer.

The server and the simulator drive it alike: commands become rows, rows are committed, only committed rows are told.
"""
