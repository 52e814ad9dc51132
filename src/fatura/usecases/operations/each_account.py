"""Run code for every account, even if it fails for some accounts (D-216)."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

from fatura.observability import log, logged
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import DatabaseUnavailableError


@dataclass(frozen=True, slots=True)
class FailedAccount:
    account_id: UUID
    why: str


@dataclass(frozen=True, slots=True)
class EachAccount:
    """Collects the accounts for which the code in an `attempt` block failed."""

    deps: Deps
    failed: list[FailedAccount] = field(default_factory=list[FailedAccount])

    @asynccontextmanager
    async def attempt(self, account_id: UUID) -> AsyncGenerator[None]:
        """Run a `with` block for an account. If the block raises an exception, log it and add the account to `failed`.

        Raises DatabaseUnavailableError if the database as a whole is unavailable.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001 - logged with its traceback; the other accounts must go on
            if isinstance(error, DatabaseUnavailableError):
                # `ping` fails only if the whole database is unavailable, and not if one node of a cluster is
                await self.deps.db.ping()
            log.exception("account.failed", account_id=str(account_id))
            self.failed.append(FailedAccount(account_id, _why(error)))


def _why(error: Exception) -> str:
    if isinstance(error, DatabaseUnavailableError):
        return str(error)
    return f"an unexpected error, with its traceback in the log line `account.failed`: {logged(error)}"
