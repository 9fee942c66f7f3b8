"""Engine inputs written down for replay: the format, the switch, the snapshot a late recording begins with."""
