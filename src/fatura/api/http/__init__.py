"""What all routes share: authentication, bodies, limits, problems. It knows no resource."""
