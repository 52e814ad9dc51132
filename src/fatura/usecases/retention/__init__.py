"""Delete rows that are older than the settings allow and that nothing needs any more (D-246).

Entry points: workers call `deletion.run`, which deletes one batch.
"""
