"""What the core remembers, and who may change it: fleet, sessions, operations, timers, stories. No rule about what to
do next.
"""
