"""Statements for products, plans with their versions, propagation and product mirrors."""
