"""Fault runs: programs that inject faults into the engine and check its guarantees.

All modules of this package use the following words. A run is one of these programs, such as `crashes`; the module
`runs` lists all runs. A seed determines the random choices of a run. A trial is one experiment of a run, such as one
kill at one statement. A journal records, outside the engine's database, what test gateways, test merchants or clients
did. A lane is a loop of the engine's worker for one kind of work, such as generating invoices.
"""
