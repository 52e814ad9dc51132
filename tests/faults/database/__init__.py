"""Kill PostgreSQL, suspend it, use up its connections and disks, and fail over a cluster, all under load."""
