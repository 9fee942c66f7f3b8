"""What machines and needs are like, interned: classes, profiles, stamps, and which class serves which profile.
Nothing here counts machines.
"""
