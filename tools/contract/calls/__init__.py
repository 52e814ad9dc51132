"""Programs that call a running engine with a generated client.

Each is copied into its client's folder, checked and run.
"""
