"""Programs that call a running engine with a generated client.

`make contract` copies each program into the folder of its client, checks it and runs it.
"""
