"""Open accounts (D-44, D-47)."""

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.audit import Actor, Origin
from fatura.domain.audit_actions import ACCOUNT_CREATE
from fatura.domain.credentials import Mode
from fatura.domain.sandbox import DEFAULT_PROVIDER_ACCOUNT
from fatura.ids import new_id
from fatura.store.accounts import accounts
from fatura.store.sandbox import test_clock
from fatura.usecases.accounts import api_keys, integration_secret
from fatura.usecases.connections import gateway_connections
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import Work, check_clock

CURRENCY = "BRL"
SANDBOX_PROVIDER = "sandbox"


@dataclass(frozen=True, slots=True)
class OpenedAccount:
    """A new account with its API key and its integration secret, which are shown only once."""

    account_id: UUID
    api_key: str
    secret: str


async def open_account(deps: Deps, *, name: str, mode: Mode, opened_by: Actor) -> OpenedAccount:
    """Create an account with an API key and an integration secret (D-44).

    A sandbox account also gets a sandbox gateway connection and a test clock. The account's audit log begins with an
    entry about its creation. Raises WrongClockError.
    """
    real_now = deps.clock()
    account = Account(new_id(real_now), mode, CURRENCY, timedelta(0))
    async with deps.db.transaction(account.account_id) as tx:
        await check_clock(deps, tx)
        now = account.now(real_now)
        await accounts.insert(tx, name=name, mode=mode, currency=CURRENCY, created_at=now)
        work = Work(deps, tx, account, now)
        state = {"name": name, "mode": mode, "currency": CURRENCY}
        work.audit_for(Origin(opened_by), ACCOUNT_CREATE, resource_id=account.account_id, after=state)
        _, key = await api_keys.create(work, "first key")
        secret = await integration_secret.create_secret(work)
        if mode is Mode.SANDBOX:
            await test_clock.insert(tx)
            await gateway_connections.connect(
                work,
                provider=SANDBOX_PROVIDER,
                label="Sandbox",
                credentials={},
                settings={},
                provider_account=DEFAULT_PROVIDER_ACCOUNT,
            )
        await work.finish()
    return OpenedAccount(account.account_id, key, secret)


async def newest_account(deps: Deps) -> UUID | None:
    async with deps.db.discovery() as tx:
        return await accounts.discover_newest(tx)
