"""Price pulls, their attempts, and the values of variable items."""
