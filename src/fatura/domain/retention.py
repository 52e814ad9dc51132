"""Which old rows may be deleted (D-246)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

LOOK_AGAIN = timedelta(hours=1)
"""Minimum time between two searches for an account's old rows, so that each search finds many rows."""


class Kind(StrEnum):
    """A kind of rows that are deleted when they are old. FATURA_RETENTION_<name> sets how long they are kept."""

    EVENTS = "events"
    DELIVERIES = "deliveries"
    PRICE_CALLS = "price_calls"
    AUDIT = "audit"
    GATEWAY_WEBHOOKS = "gateway_webhooks"
    CHARGE_CALLS = "charge_calls"


@dataclass(frozen=True, slots=True)
class Old:
    """A row that may be old. `stored_at` is real time; `created_at` is on the account's clock.

    `sequence` is the number of the row. `is_held` is true if the row is still needed, even if it is old.
    """

    sequence: int
    stored_at: datetime
    created_at: datetime
    is_held: bool


@dataclass(frozen=True, slots=True)
class Cut:
    """The rows to delete, and the instant `kept_from` in real time.

    The next search for old rows runs at `kept_from` plus the time for which rows of this kind are kept.
    """

    old: Sequence[Old]
    kept_from: datetime


def cut(rows: Sequence[Old], *, stored_to: datetime, limit: int, real_now: datetime) -> Cut:
    """Choose the rows to delete: those before the first row that is held or was stored after `stored_to`.

    `rows` are the oldest rows, in the order of their numbers. If `rows` has fewer than `limit` rows, no other
    rows exist. Because only the oldest rows are deleted, the numbers of the remaining rows have no gaps.
    """
    count = 0
    while count < len(rows) and rows[count].stored_at <= stored_to and not rows[count].is_held:
        count += 1
    if count == len(rows):
        kept_from = rows[-1].stored_at if count == limit else real_now
    else:
        kept_from = max(rows[count].stored_at, stored_to + LOOK_AGAIN)
    return Cut(rows[:count], kept_from)


def next_kept_from(first: datetime | None, *, stored_to: datetime, real_now: datetime) -> datetime:
    """Return the new `kept_from` (see Cut). `first` is when the oldest row left was stored; None if no row is left."""
    if first is None:
        return real_now
    return first if first <= stored_to else max(first, stored_to + LOOK_AGAIN)
