"""Plumbing that every route shares: authentication, bodies, limits, problems. It knows no resource."""
