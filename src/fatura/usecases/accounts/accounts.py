"""Open accounts, authenticate requests and manage API keys (spec 5, D-41, D-47)."""

import secrets
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from uuid import UUID

from fatura.domain.account import Account, Caller
from fatura.domain.credentials import (
    SECRET_BYTES,
    ApiKey,
    Mode,
    format_key,
    hash_secret,
    parse_key,
    visible_prefix,
)
from fatura.domain.errors import TOO_MANY_API_KEYS, UNAUTHORIZED, EngineError, not_found
from fatura.domain.sandbox import DEFAULT_PROVIDER_ACCOUNT
from fatura.ids import new_id
from fatura.store.accounts import accounts
from fatura.store.accounts import secrets as stored_secrets
from fatura.store.sandbox import test_clock
from fatura.usecases.accounts import integration_secret
from fatura.usecases.clock_skew import WrongClockError
from fatura.usecases.connections import gateway_connections
from fatura.usecases.deps import Deps
from fatura.usecases.paging import Page
from fatura.usecases.transaction import Work, check_clock
from fatura.views.integration import ApiKeyPageView, ApiKeyView, NewApiKeyView

CURRENCY = "BRL"
LAST_USED_PRECISION = timedelta(minutes=1)
"""Minimum time between two updates of a key's `last_used_at`."""
MAX_API_KEYS = 100
"""Maximum number of an account's keys that are not revoked (D-189)."""
SANDBOX_PROVIDER = "sandbox"


@dataclass(frozen=True, slots=True)
class OpenedAccount:
    """A new account with its API key and its integration secret, which are shown only once."""

    account_id: UUID
    api_key: str
    secret: str


async def open_account(deps: Deps, *, name: str, mode: Mode) -> OpenedAccount:
    """Create an account with an API key and an integration secret (D-44).

    A sandbox account also gets a sandbox gateway connection and a test clock. Raises WrongClockError.
    """
    real_now = deps.clock()
    account = Account(new_id(real_now), mode, CURRENCY, timedelta(0))
    async with deps.db.transaction(account.account_id) as tx:
        await check_clock(deps, tx)
        now = account.now(real_now)
        await accounts.insert(tx, name=name, mode=mode, currency=CURRENCY, created_at=now)
        work = Work(deps, tx, account, now)
        _, key = await create_api_key(work, "first key")
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


async def check_key_ring(deps: Deps) -> None:
    """Check that this process's key ring decrypts the newest account's secret.

    Each process calls this when it starts, so that nothing is encrypted with a wrong key ring.
    Raises KeyRingError, DatabaseUnavailableError.
    """
    account_id = await newest_account(deps)
    if account_id is None:
        return
    async with deps.db.transaction(account_id) as tx:
        found = await stored_secrets.find_current(tx)
    if found is not None:
        secret_id, sealed = found
        deps.vault.open(sealed, place=stored_secrets.PLACE, account_id=account_id, row_id=str(secret_id))


async def newest_account(deps: Deps) -> UUID | None:
    async with deps.db.discovery() as tx:
        return await accounts.discover_newest(tx)


async def authenticate(deps: Deps, key_text: str | None) -> Caller:
    """Return the account of an API key, and the key; a malformed key is refused without a query (spec 5, D-41).

    Raises EngineError: `engine.unauthorized`; the message does not reveal why the key was refused.
    """
    parsed = parse_key(key_text) if key_text else None
    if parsed is None:
        raise _unauthorized()
    real_now = deps.clock()
    async with deps.db.transaction(parsed.account_id, quick=True) as tx:
        holder = await accounts.find_key(tx, parsed.secret_hash)
        if holder is None or holder.caller.account.mode is not parsed.mode:
            raise _unauthorized()
        now = holder.caller.account.now(real_now)
        if holder.last_used_at is None or now - holder.last_used_at >= LAST_USED_PRECISION:
            with suppress(WrongClockError):  # if the clock is wrong, only skip the update
                await check_clock(deps, tx)
                await accounts.touch_key(tx, holder.caller.api_key_id, used_at=now)
    return holder.caller


def _unauthorized() -> EngineError:
    return EngineError(
        UNAUTHORIZED,
        "Send a valid API key as `Authorization: Bearer rk_...`; `fatura account create` prints the first.",
    )


async def create_api_key(work: Work, name: str) -> tuple[ApiKey, str]:
    """Create an API key; return its record and its text. Only a hash of the text is stored (D-41)."""
    text = format_key(work.account.account_id, work.account.mode, secret=secrets.token_bytes(SECRET_BYTES))
    key = ApiKey(work.new_id(), name, visible_prefix(text), work.now, None, None)
    await accounts.insert_key(work.tx, key, secret_hash=hash_secret(text))
    return key, text


async def issue_api_key(work: Work, name: str) -> NewApiKeyView:
    """Create an API key; the answer contains the text of the key, which is not shown again (D-41).

    Raises EngineError: `engine.too_many_api_keys`.
    """
    if await accounts.lock_usable_keys(work.tx) >= MAX_API_KEYS:
        raise EngineError(
            TOO_MANY_API_KEYS,
            f"An account has at most {MAX_API_KEYS} API keys that are not revoked; revoke one that you no longer need "
            "with DELETE /v1/integration/api-keys/{id}.",
            meta={"limit": MAX_API_KEYS},
        )
    key, text = await create_api_key(work, name)
    return NewApiKeyView.of(key, key=text)


async def list_api_keys(work: Work, page: Page) -> ApiKeyPageView:
    """Return a page of the account's keys, newest first, revoked ones included (D-189)."""
    total = await accounts.count_keys(work.tx)
    return await page.read(ApiKeyPageView, partial(accounts.key_page, work.tx), of=ApiKeyView.of, total=total)


async def revoke_api_key(work: Work, api_key_id: UUID) -> None:
    """Revoke a key immediately and permanently (D-41). Raises EngineError: `engine.not_found`."""
    if not await accounts.revoke_key(work.tx, api_key_id, revoked_at=work.now):
        raise not_found("API key", api_key_id)
