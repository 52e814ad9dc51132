"""Kill, freeze and exhaust PostgreSQL, and fail over a cluster, under load."""
