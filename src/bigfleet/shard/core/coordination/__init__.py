"""The coordinator's word and what follows: terms, ownership, machines given away, drains for others, bindings."""
