"""Figures for dashboards, and the probe that tells why a need is short. It changes nothing."""
