"""What all routes share: authentication, bodies, limits and problems. Nothing here depends on a resource."""
