"""Show accounts to operators (D-243)."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from fatura.domain.account import Account, AccountSummary
from fatura.domain.connection import Connection
from fatura.domain.credentials import ApiKey
from fatura.domain.errors import NOT_FOUND, EngineError, require
from fatura.store import counters
from fatura.store.accounts import accounts, api_keys
from fatura.store.connections import connections
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import Work, in_snapshot

PAGE = 500


@dataclass(frozen=True, slots=True)
class AccountDetail:
    """An account with its totals, its working API keys, and its gateway connections."""

    summary: AccountSummary
    totals: Mapping[str, int]
    api_keys: Sequence[ApiKey]
    connections: Sequence[Connection]


async def load(deps: Deps, account_id: UUID) -> Account:
    """Return an account. Raises EngineError: `engine.not_found`, and DatabaseUnavailableError."""
    async with deps.db.transaction(account_id, quick=True) as tx:
        account = await accounts.load(tx)
    if account is None:
        message = f"No account has the id {account_id}; `fatura account list` shows the ids."
        raise EngineError(NOT_FOUND, message)
    return account


async def list_all(deps: Deps) -> AsyncGenerator[AccountSummary]:
    """Yield all accounts, oldest first. Raises DatabaseUnavailableError."""
    after = UUID(int=0)
    while True:
        async with deps.db.discovery() as tx:
            page = await accounts.discover_page(tx, after=after, limit=PAGE)
        for each in page:
            yield each
        if len(page) < PAGE:
            return
        after = page[-1].account_id


async def show(deps: Deps, account_id: UUID) -> AccountDetail:
    """Return an account's details. Raises EngineError: `engine.not_found`, and DatabaseUnavailableError."""
    return await in_snapshot(deps, await load(deps, account_id), _show)


async def _show(work: Work) -> AccountDetail:
    summary = require(await accounts.summary(work.tx), "account", id_=work.account.account_id)
    return AccountDetail(
        summary,
        await counters.totals(work.tx),
        await api_keys.live(work.tx, now=work.now),
        [each.connection for each in await connections.find_all(work.tx)],
    )
