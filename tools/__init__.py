"""Programs for developing this repository, run by make. They are not installed with the engine."""
