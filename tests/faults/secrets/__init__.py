"""Search for secrets outside the places where they are stored encrypted."""
