"""The demonstration: a small fleet of real parts on this machine, and a screen that shows what it decides."""
