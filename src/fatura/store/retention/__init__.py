"""SQL that finds and deletes old rows, and keeps how far they are deleted (D-246)."""
