"""The account: its mode, its currency and its clock (D-1, D-44), and who calls the API for it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from fatura.domain.credentials import Mode, Scope

MAX_CLOCK_OFFSET = timedelta(days=10_957)
"""How far a test clock may be ahead of real time: 30 years (D-214).

The engine computes dates of later cycles from the clock, and neither Python nor PostgreSQL has dates without end.
"""


@dataclass(frozen=True, slots=True)
class Account:
    """One merchant's account.

    `clock_offset` is how far the account's time is ahead of real time. It is zero on live accounts (D-45).
    """

    account_id: UUID
    mode: Mode
    currency: str
    clock_offset: timedelta

    def now(self, real_now: datetime) -> datetime:
        """Return the account's current time, cut to whole milliseconds (D-1)."""
        instant = real_now + self.clock_offset
        return instant.replace(microsecond=instant.microsecond // 1000 * 1000)


@dataclass(frozen=True, slots=True)
class Caller:
    """The account of an authenticated request, and the API key that was sent."""

    account: Account
    api_key_id: UUID
    key_name: str
    scopes: frozenset[Scope]
