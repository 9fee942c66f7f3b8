"""The pod controller: writes a CapacityRequest for every pod that BigFleet has to find a place for, and no other."""
