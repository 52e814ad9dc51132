"""Products, plans with their versions, propagation and product mirrors."""
