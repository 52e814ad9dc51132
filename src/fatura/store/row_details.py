"""Remove the data of rows and parameters from the errors of the driver, because errors are logged (D-219)."""

import re
from collections.abc import Generator
from contextlib import contextmanager

import asyncpg

_QUOTED = re.compile(r'"[^"]*"')


@contextmanager
def hidden_row_details() -> Generator[None]:
    """Remove values of rows and parameters from the errors that the driver raises in the `with` block.

    The DETAIL of a violated constraint shows the whole row, or the key. The message of a DataError, and its cause,
    show the invalid value.
    """
    try:
        yield
    except asyncpg.PostgresError as error:
        error.detail = None
        if isinstance(error, asyncpg.DataError):
            error.args = (_without_values(str(error.args[0])),)
            error.__cause__, error.__suppress_context__ = None, True
        raise


def _without_values(message: str) -> str:
    return _QUOTED.sub('"..."', message.partition(": ")[0])
