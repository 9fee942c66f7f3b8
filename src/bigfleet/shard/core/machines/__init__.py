"""What providers said: intake of records, life cycle, stamps, ownership, machines to read again. Acting on them is
`actions`.
"""
