"""Drive a sandbox account's test clock and its sandbox gateway."""
