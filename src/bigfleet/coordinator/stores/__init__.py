"""Where the coordinator's rows live: one SQLite file for one replica, etcd for several. One contract, `store.Store`."""
