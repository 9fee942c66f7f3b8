"""What clusters said: demand, quarantine of doubtful roll-ups, node reports, hints of capacity. Machines are next
door.
"""
