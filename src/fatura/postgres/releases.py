"""The newest minor releases of PostgreSQL, for a warning when a server runs an older one (D-239)."""

NEWEST_MINOR = {15: 20, 16: 16, 17: 12, 18: 6}
"""The newest minor of each supported major, as of November 2026. Update this at each release of Fatura."""


def newer_minor(major: int, minor: int) -> str | None:
    """Return the newest known release of the major version if it is newer than `minor`, else None."""
    newest = NEWEST_MINOR.get(major, 0)
    return f"{major}.{newest}" if newest > minor else None
