"""Programs of the repository itself, run by make; nothing here is installed with the engine."""
