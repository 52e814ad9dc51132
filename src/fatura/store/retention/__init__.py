"""SQL that finds and deletes old rows, and stores the progress of the deletion (D-246)."""
