"""What runs by itself: which work, when, and how much at once."""
