"""The machines as counted cells: where records go, who is in a cell, which are free. What to do with them is decided
elsewhere.
"""
