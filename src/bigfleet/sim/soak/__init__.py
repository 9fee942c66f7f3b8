"""Long random runs: soak, full protocol, and scenarios made up by chance."""
