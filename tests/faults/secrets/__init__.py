"""Look for secrets outside the places where they are sealed."""
