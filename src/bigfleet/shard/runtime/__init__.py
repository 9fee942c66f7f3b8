"""Where the core meets time and disks: the conductor's loop, the engine's thread, clock, journal, audit log."""
