"""The schema as plain SQL files, and the runner that applies them."""
