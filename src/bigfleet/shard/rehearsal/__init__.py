"""A shard without clusters or clouds: pretended operators, seeded machines, synthetic demand."""
