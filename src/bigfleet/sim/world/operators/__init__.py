"""The operators of simulated clusters: the session they share, and the two things they can say of their pods."""
