"""Which old rows may be deleted (D-246)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

LOOK_AGAIN = timedelta(hours=1)
"""Minimum time between two looks at the same rows, so that an account is not visited for each row that turns old."""


class Kind(StrEnum):
    """A kind of rows that are deleted when they are old; its setting is FATURA_RETENTION_ and its name."""

    EVENTS = "events"
    DELIVERIES = "deliveries"
    PRICE_CALLS = "price_calls"
    AUDIT = "audit"


@dataclass(frozen=True, slots=True)
class Old:
    """A numbered row. `stored_at` is real time, `created_at` the account's clock. A held row is still needed."""

    sequence: int
    stored_at: datetime
    created_at: datetime
    is_held: bool


@dataclass(frozen=True, slots=True)
class Cut:
    """The first rows of a table, which are old and not held, and `kept_from` after their deletion."""

    old: Sequence[Old]
    kept_from: datetime


def cut(rows: Sequence[Old], *, stored_to: datetime, limit: int, real_now: datetime) -> Cut:
    """Choose which of the oldest rows to delete: those stored until `stored_to`, up to the first one that is held.

    `rows` are the oldest rows in the order of their numbers. If there are fewer than `limit`, there are no others.
    Nothing is deleted behind a row that stays, so the numbers of the remaining rows have no gaps.
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
    """Return `kept_from` after a batch. `first` is the time of the oldest row that is left."""
    if first is None:
        return real_now
    return first if first <= stored_to else max(first, stored_to + LOOK_AGAIN)
