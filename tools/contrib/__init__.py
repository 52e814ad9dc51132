"""Checks the files of `contrib` with the linters of their formats (`make contrib`)."""
