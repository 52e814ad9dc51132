"""The HTTP API: routes, formats and status codes that clients see; no business rules."""
