"""Programs for developing this repository, run by make; they are not installed with the engine."""
