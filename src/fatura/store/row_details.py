"""Remove the data of rows and parameters from the errors of the driver, because errors are logged (D-219)."""

import re

import asyncpg

_QUOTED = re.compile(r'"[^"]*"')


def hide_row_details(error: asyncpg.PostgresError) -> None:
    """Remove values of rows and parameters from an error of the driver.

    The DETAIL of a violated constraint shows the whole row, or the key. The message of a DataError, and its cause,
    show the invalid value.
    """
    error.detail = None
    if isinstance(error, asyncpg.DataError):
        error.args = (_without_values(str(error.args[0])),)
        error.__cause__, error.__suppress_context__ = None, True


def _without_values(message: str) -> str:
    return _QUOTED.sub('"..."', message.partition(": ")[0])
