"""The operator as a process: carries what the core decides to the shard and into the cluster, and decides nothing."""
