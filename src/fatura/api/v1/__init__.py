"""The routes of version 1, one file per resource, each with its request models."""
