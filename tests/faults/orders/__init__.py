"""Run two concurrent operations, such as generation and a cancellation, in many orders of their SQL statements."""
