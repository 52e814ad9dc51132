"""Programs that call a running engine with a generated client.

Each program is copied into the folder of its client, checked and run.
"""
