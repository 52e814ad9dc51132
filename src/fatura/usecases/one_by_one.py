"""Handle claimed rows together. If this fails unexpectedly, handle each row alone and put off the rows that fail."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TypeVar

from fatura.observability import log
from fatura.usecases.transaction import DATABASE_FAILURES, Work

R = TypeVar("R")
T = TypeVar("T")

PUT_OFF_BY = timedelta(minutes=10)
"""Delay before a row that failed alone is tried again."""


async def each_alone_if_one_fails(
    work: Work,
    rows: Sequence[R],
    function: Callable[[Work, Sequence[R]], Awaitable[Sequence[T]]],
    *,
    put_off: Callable[[Work, R], Awaitable[None]],
) -> Sequence[T]:
    """Return what `function` returns for rows that this transaction has claimed (D-186).

    If `function` raises an unexpected error, undo its changes and call it for each row alone. `put_off` logs the error
    of a row that fails alone, and makes the row due later. So one faulty row does not stop the work of its account.
    Raises DATABASE_FAILURES, and what `put_off` raises.
    """
    if not rows:
        return []
    try:
        async with work.savepoint():
            return await function(work, rows)
    except DATABASE_FAILURES:
        raise
    except Exception:  # noqa: BLE001 - `put_off` logs it in full, after the row has failed alone
        if len(rows) == 1:
            await put_off(work, rows[0])
            return []
        log.exception("batch.failed", account_id=str(work.account.account_id), rows=len(rows))
    alone = [await each_alone_if_one_fails(work, [row], function, put_off=put_off) for row in rows]
    return [each for results in alone for each in results]
