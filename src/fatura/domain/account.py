"""The account: whose data it is, live or sandbox, and what its clock shows (D-1, D-44)."""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from uuid import UUID

from fatura.domain.calendar import local_date
from fatura.domain.credentials import Mode


@dataclass(frozen=True, slots=True)
class Account:
    """An account as every request and task needs it; `clock_offset` is zero on live accounts (D-45)."""

    account_id: UUID
    mode: Mode
    currency: str
    clock_offset: timedelta

    def now(self, real_now: datetime) -> datetime:
        """Return the account's *now*, in whole milliseconds as the wire shows it (D-1)."""
        instant = real_now + self.clock_offset
        return instant.replace(microsecond=instant.microsecond // 1000 * 1000)

    def today(self, real_now: datetime) -> date:
        """Return the Sao Paulo date of the account's now (D-1)."""
        return local_date(self.now(real_now))
