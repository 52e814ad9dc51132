"""Kill, freeze and fill up PostgreSQL, and fail over a cluster, under load."""
