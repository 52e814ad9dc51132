"""Create, list and revoke API keys, and authenticate requests with them (spec 5, D-41, D-64)."""

import secrets
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from fatura.domain.account import Caller
from fatura.domain.credentials import (
    ALL_SCOPES,
    SECRET_BYTES,
    ApiKey,
    ParsedKey,
    Scope,
    format_key,
    hash_secret,
    parse_key,
    visible_prefix,
)
from fatura.domain.errors import (
    LAST_KEY,
    TOO_MANY_API_KEYS,
    UNAUTHORIZED,
    EngineError,
    invalid_fields,
    require,
)
from fatura.store.accounts import api_keys
from fatura.usecases.database_clock import WrongClockError
from fatura.usecases.deps import Deps
from fatura.usecases.paging import Page
from fatura.usecases.transaction import Work, check_clock
from fatura.views.integration import ApiKeyPageView, ApiKeyView, NewApiKeyView

LAST_USED_PRECISION = timedelta(minutes=1)
"""Minimum time between two updates of a key's `last_used_at`."""
MAX_API_KEYS = 100
"""Maximum number of an account's keys that are neither revoked nor expired (D-189)."""
MAX_ENDED_KEYS = 1000
"""Number of revoked or expired keys that an account keeps, so that the list of keys shows them (D-245)."""
ENDED_BATCH = 100
"""Maximum number of revoked or expired keys that are deleted when a key is created.

It is above 1, because many keys may expire at the same time.
"""


async def authenticate(deps: Deps, key_text: str | None, count: Callable[[UUID], None]) -> Caller:
    """Return the caller that an API key identifies: the key and its account (spec 5, D-41).

    `count` counts a request of the account, and raises an error if the account has sent too many requests (D-48). If
    the key was accepted a moment ago, `count` is called before the database is asked. A key that is malformed or
    forged, or that was refused a moment ago, is refused without the database. A separate limit applies to failed
    look-ups of keys in the database (D-240).

    Raises EngineError: `engine.unauthorized`, whose message does not reveal why the key was refused;
    `engine.rate_limited`.
    """
    parsed = _parsed(deps, key_text) if key_text else None
    if parsed is None or parsed in deps.refused_keys:
        raise _unauthorized()
    is_counted = parsed in deps.accepted_keys
    if is_counted:
        count(parsed.account_id)
    elif parsed not in deps.working_keys:
        deps.failed_lookups.check(parsed.account_id)
    caller = await _find(deps, parsed)
    if caller is None:
        deps.failed_lookups.count(parsed.account_id)
        deps.working_keys.discard(parsed)
        deps.refused_keys.add(parsed)
        raise _unauthorized()
    deps.accepted_keys.add(parsed)
    deps.working_keys.add(parsed)
    if not is_counted:
        count(parsed.account_id)
    return caller


def _parsed(deps: Deps, key_text: str) -> ParsedKey | None:
    """Return the parts of a key. Those of a key in use are remembered, because checking a tag takes long."""
    return deps.working_keys.find(hash_secret(key_text)) or parse_key(key_text, tagger=deps.tagger)


async def _find(deps: Deps, parsed: ParsedKey) -> Caller | None:
    """Return the key's caller, and store the time of use. Return None if the key is unknown, revoked or expired."""
    real_now = deps.clock()
    async with deps.db.transaction(parsed.account_id, quick=True) as tx:
        holder = await api_keys.find(tx, parsed.secret_hash)
        if holder is None or holder.caller.account.mode is not parsed.mode:
            return None
        now = holder.caller.account.now(real_now)
        if holder.expires_at is not None and holder.expires_at <= now:
            return None
        if holder.last_used_at is None or now - holder.last_used_at >= LAST_USED_PRECISION:
            with suppress(WrongClockError):  # if the clock is wrong, only skip the update
                await check_clock(deps, tx)
                await api_keys.note_use(tx, holder.caller.api_key_id, used_at=now)
    return holder.caller


def _unauthorized() -> EngineError:
    return EngineError(
        UNAUTHORIZED,
        "Send a valid API key as `Authorization: Bearer rk_...`. No key was sent, or it is unknown, was revoked or has "
        "expired. `fatura account create` prints the first key.",
    )


async def create(
    work: Work, name: str, *, scopes: Collection[Scope] = ALL_SCOPES, expires_at: datetime | None = None
) -> tuple[ApiKey, str]:
    """Create an API key; return its record and its text. Only a hash of the text is stored (D-41)."""
    text = format_key(
        work.account.account_id,
        work.account.mode,
        secret=secrets.token_bytes(SECRET_BYTES),
        tagger=work.deps.tagger,
    )
    key = ApiKey(
        api_key_id=work.new_id(),
        name=name,
        prefix=visible_prefix(text),
        scopes=tuple(scope for scope in Scope if scope in scopes),
        created_at=work.now,
        expires_at=expires_at,
        last_used_at=None,
        revoked_at=None,
    )
    await api_keys.insert(work.tx, key, secret_hash=hash_secret(text))
    return key, text


async def issue(
    work: Work, name: str, *, scopes: Collection[Scope], expires_at: datetime | None
) -> NewApiKeyView:
    """Create an API key; the answer contains the text of the key, which is not shown again (D-41).

    Raises EngineError: `engine.too_many_api_keys`; `engine.invalid_request` if `expires_at` is not in the future.
    """
    await api_keys.lock(work.tx)
    await work.refresh()
    if expires_at is not None and expires_at <= work.now:
        raise invalid_fields(("expiresAt", "must be later than now, on the account's clock"))
    if await api_keys.count_live(work.tx, now=work.now) >= MAX_API_KEYS:
        raise EngineError(
            TOO_MANY_API_KEYS,
            f"An account has at most {MAX_API_KEYS} API keys that are not revoked; revoke one that you no longer need "
            "with DELETE /v1/integration/api-keys/{id}.",
            meta={"limit": MAX_API_KEYS},
        )
    await api_keys.delete_ended(work.tx, now=work.now, kept=MAX_ENDED_KEYS, limit=ENDED_BATCH)
    key, text = await create(work, name, scopes=scopes, expires_at=expires_at)
    view = NewApiKeyView.of(key, key=text)
    work.audit(key.api_key_id, after=view)
    return view


async def list_all(work: Work, page: Page) -> ApiKeyPageView:
    """Return a page of the account's keys, newest first, revoked and expired ones included (D-189)."""
    total = await api_keys.count(work.tx)
    return await page.read(ApiKeyPageView, partial(api_keys.page, work.tx), of=ApiKeyView.of, total=total)


async def revoke(work: Work, api_key_id: UUID, *, may_be_last: bool = False) -> None:
    """Revoke a key immediately and permanently (D-41).

    `may_be_last` allows revoking the account's last key that can create keys. Only operators may do this (D-243).

    Raises EngineError: `engine.not_found`, `engine.last_key`.
    """
    await api_keys.lock(work.tx)
    await work.refresh()  # a key may have expired during the wait for the lock
    if not may_be_last and await api_keys.live_admin_keys(work.tx, now=work.now) == [api_key_id]:
        raise EngineError(
            LAST_KEY,
            "This is the account's last key that can create keys; first create another key with the scope `admin`.",
        )
    key = require(await api_keys.find_by_id(work.tx, api_key_id), "API key", id_=api_key_id)
    revoked = replace(key, revoked_at=key.revoked_at or work.now)
    await api_keys.revoke(work.tx, api_key_id, revoked_at=work.now)
    work.audit(api_key_id, before=ApiKeyView.of(key), after=ApiKeyView.of(revoked))
