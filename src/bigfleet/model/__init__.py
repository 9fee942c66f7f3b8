"""Values of the domain: immutable, hashable, standard library only.

Nothing here reads a clock, a socket or a configuration; every other package may import it and it imports none of them.
"""
