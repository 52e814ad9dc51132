"""The account with its mode, currency and clock (D-1, D-44), and the caller of an API request."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from fatura.domain.credentials import Mode, Scope

MAX_CLOCK_OFFSET = timedelta(days=10_957)
"""How far a test clock may be ahead of real time: 30 years (D-214).

Without a limit, the dates of later cycles could exceed the latest date of Python or PostgreSQL.
"""


class AccountStatus(StrEnum):
    """Whether an account is billed."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
    """An operator has suspended the account (D-242)."""
    RECOVERING = "recovering"
    """After a restore, `fatura restored` is comparing the account's charges with the gateways (D-123)."""


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
class AccountSummary:
    """What operators see of an account. `suspended_at` and `recovering_since` are real time."""

    account_id: UUID
    name: str
    mode: Mode
    currency: str
    created_at: datetime
    suspended_at: datetime | None
    recovering_since: datetime | None

    @property
    def status(self) -> AccountStatus:
        if self.suspended_at is not None:
            return AccountStatus.SUSPENDED
        return AccountStatus.ACTIVE if self.recovering_since is None else AccountStatus.RECOVERING


@dataclass(frozen=True, slots=True)
class Caller:
    """The account of an authenticated request, and the API key that was sent."""

    account: Account
    api_key_id: UUID
    key_name: str
    scopes: frozenset[Scope]
    is_suspended: bool = False
