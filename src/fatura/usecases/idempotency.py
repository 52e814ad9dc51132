"""Run a request once per Idempotency-Key. One transaction commits the request's effect and its answer (D-14)."""

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from fatura.domain.account import Account
from fatura.domain.errors import IDEMPOTENCY_IN_PROGRESS, IDEMPOTENCY_KEY_REUSED, EngineError
from fatura.store import idempotency, leases
from fatura.store.db import LOCK_TIMEOUT_MS, DeadlockError, LockTimeoutError
from fatura.store.idempotency import StoredKey
from fatura.usecases.audit_draft import AuditDraft
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import Work, in_audited_transaction, in_transaction
from fatura.views.view import View

T = TypeVar("T")

KEEP_FOR = timedelta(days=30)
KEEP_SECRET_FOR = timedelta(hours=24)
"""How long an answer that contains a secret is kept; it is stored encrypted (D-14)."""
KEY_WAIT_SECONDS = 5
"""How long a request waits for an earlier one with the same key (D-14).

`execute_once` waits in several transactions, one after another. Each transaction ends with a lock timeout and returns
its database connection to the pool.
"""
_KEY_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """A successful answer, stored byte for byte."""

    status: int
    body: bytes
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class IdempotentRequest:
    """A request with an Idempotency-Key.

    A later request is a repeat if it has the same key, the same route with the same ids, and the same parsed body.
    """

    key: str
    route: str
    body: object

    @property
    def stored_key(self) -> str:
        """Return a hash of the key, because the key may contain ids or addresses of customers (D-228)."""
        return hashlib.sha256(self.key.encode()).hexdigest()

    def body_hash(self) -> bytes:
        """Return a hash of the parsed body, which does not depend on the formatting of the JSON."""
        return hashlib.sha256(json.dumps(self.body, sort_keys=True).encode()).digest()


@dataclass(slots=True)
class _Progress:
    """Whether the transaction has claimed the key.

    A lock timeout before the claim means that another request with the key is in progress.
    """

    is_claimed: bool = False


async def execute_once(
    deps: Deps,
    account: Account,
    request: IdempotentRequest | None,
    function: Callable[[Work], Awaitable[View]],
    *,
    status: int,
    draft: AuditDraft | None,
    holds_secret: bool = False,
) -> StoredAnswer:
    """Run `function` in a transaction, or return the answer that is stored for the key. Errors are not stored.

    If `function` runs, it must call `Work.audit` for `draft` (D-63).

    Raises EngineError: `engine.idempotency_key_reused`; `engine.idempotency_in_progress` if another request with the
    key is still running after KEY_WAIT_SECONDS; and what `function` raises.
    Raises LockTimeoutError if the transaction waits too long for any lock other than the key's.
    """
    if request is None:
        return await in_audited_transaction(deps, account, draft, _execute, function, status=status)
    progress, give_up_at = _Progress(), time.monotonic() + KEY_WAIT_SECONDS
    while True:
        try:
            return await in_audited_transaction(
                deps,
                account,
                draft,
                _execute_or_replay,
                request,
                function,
                progress,
                status=status,
                holds_secret=holds_secret,
            )
        except LockTimeoutError:
            if progress.is_claimed:
                raise
            if time.monotonic() + LOCK_TIMEOUT_MS / 2000 > give_up_at:
                raise _in_progress() from None


async def _execute(work: Work, function: Callable[[Work], Awaitable[View]], *, status: int) -> StoredAnswer:
    return StoredAnswer(status, msgspec.json.encode(await function(work)))


async def _stored(work: Work, request: IdempotentRequest) -> StoredKey:
    """Return the stored key of the request. Another transaction has committed this key.

    If the key has expired and was deleted meanwhile, raises DeadlockError, so that the transaction runs again.
    """
    stored = await idempotency.find(work.tx, request.stored_key)
    if stored is None:
        raise DeadlockError("the key was deleted meanwhile")
    return stored


async def _execute_or_replay(
    work: Work,
    request: IdempotentRequest,
    function: Callable[[Work], Awaitable[View]],
    progress: _Progress,
    *,
    status: int,
    holds_secret: bool,
) -> StoredAnswer:
    progress.is_claimed = False  # after a deadlock, this function runs again
    if not await _claim(work, request):
        stored = await _stored(work, request)
        answer = _answer(work, stored, request)
        if answer is not None:
            work.audit_nothing()
            return answer
        # there is no answer yet: `begin` has claimed the key for this request, and `finish` now stores the answer
    progress.is_claimed = True
    answer = await _execute(work, function, status=status)
    body = answer.body
    await idempotency.store_answer(
        work.tx,
        request.stored_key,
        status=status,
        answer=work.seal(body, place=idempotency.PLACE, row_id=request.stored_key) if holds_secret else body,
        sealed=holds_secret,
        expires_at=work.deps.clock() + (KEEP_SECRET_FOR if holds_secret else KEEP_FOR),
    )
    return answer


async def begin(
    deps: Deps,
    account: Account,
    request: IdempotentRequest | None,
    function: Callable[[Work], Awaitable[T | View]],
    *,
    draft: AuditDraft | None,
    in_progress_for: timedelta,
) -> StoredAnswer | T:
    """Claim the key and run `function`, which reserves a call to a third party, in one transaction.

    - If `function` returns a view, no call is needed, and the view is the answer. In this case, `function` must call
      `Work.audit` for `draft` (D-63).
    - If `function` returns another result, the caller makes the call, and afterwards calls `finish`, `pause` or
      `abandon`. Until then, a repeated request waits up to KEY_WAIT_SECONDS, and then gets
      `engine.idempotency_in_progress`.
    - If the process dies, a repeated request runs `function` again after `in_progress_for`. So `function` must
      recognize what was done already.
    - If `request` is None, no key is claimed.

    Raises EngineError: `engine.idempotency_key_reused`, `engine.idempotency_in_progress`, and what `function` raises.
    """
    if request is None:
        return await in_audited_transaction(deps, account, draft, _run_unless_view, function)
    give_up_at = time.monotonic() + KEY_WAIT_SECONDS
    while True:
        try:
            return await in_audited_transaction(
                deps,
                account,
                draft,
                _begin,
                request,
                function,
                in_progress_until=deps.clock() + in_progress_for,
            )
        except EngineError as error:
            if error.problem is not IDEMPOTENCY_IN_PROGRESS or time.monotonic() > give_up_at:
                raise
        await asyncio.sleep(_KEY_POLL_SECONDS)


async def _begin(
    work: Work,
    request: IdempotentRequest,
    function: Callable[[Work], Awaitable[T | View]],
    *,
    in_progress_until: datetime,
) -> StoredAnswer | T:
    if not await _claim(work, request):
        stored = await _stored(work, request)
        answer = _answer(work, stored, request)
        if answer is not None:
            work.audit_nothing()
            return answer
        real_now, until = work.deps.clock(), stored.in_progress_until
        if until is not None and real_now < until <= leases.horizon(real_now):
            raise _in_progress()
    answer = await _run_unless_view(work, function)
    if not isinstance(answer, StoredAnswer):
        await idempotency.set_in_progress(work.tx, request.stored_key, until=in_progress_until)
        return answer
    await idempotency.store_answer(
        work.tx,
        request.stored_key,
        status=answer.status,
        answer=answer.body,
        sealed=False,
        expires_at=work.deps.clock() + KEEP_FOR,
    )
    return answer


async def _run_unless_view(work: Work, function: Callable[[Work], Awaitable[T | View]]) -> StoredAnswer | T:
    result = await function(work)
    if isinstance(result, View):
        return StoredAnswer(200, msgspec.json.encode(result))
    work.audit_later()
    return result


async def was_begun(work: Work, request: IdempotentRequest | None) -> bool:
    """Return whether an earlier request with the key reserved a call, and no answer is stored for the key yet.

    The `function` of `begin` may call this.
    """
    stored = None if request is None else await idempotency.find(work.tx, request.stored_key)
    return stored is not None and stored.in_progress_until is not None


async def finish(
    deps: Deps,
    account: Account,
    request: IdempotentRequest | None,
    function: Callable[[Work], Awaitable[View]],
    *,
    draft: AuditDraft | None,
) -> StoredAnswer:
    """Run `function` after the call that `begin` reserved, and store the returned view as the answer.

    `function` must call `Work.audit` for `draft` (D-63). Raises what `function` raises. After an EngineError that asks
    the client to retry later, only a repeat of this request may use the key. After any other EngineError, the key is
    free again.
    """
    try:
        return await execute_once(deps, account, request, function, status=200, draft=draft)
    except EngineError as error:
        end = abandon if error.retry_after_seconds is None else pause
        await in_transaction(deps, account, end, request)
        raise


async def abandon(work: Work, request: IdempotentRequest | None) -> None:
    """Free the key that `begin` claimed, because the request has changed nothing."""
    if request is not None:
        await idempotency.delete_unanswered(work.tx, request.stored_key)


async def pause(work: Work, request: IdempotentRequest | None) -> None:
    """Let a repeat of the request continue at once. The key stays claimed, so no other request may use it."""
    if request is not None:
        await idempotency.set_in_progress(work.tx, request.stored_key, until=work.deps.clock())


def _in_progress() -> EngineError:
    return EngineError(
        IDEMPOTENCY_IN_PROGRESS,
        "A request with this Idempotency-Key is still in progress; retry in a moment.",
        retry_after_seconds=1,
    )


async def is_repeat(work: Work, request: IdempotentRequest | None) -> bool:
    """Return whether the request's key is stored already. If not, store the key with an empty answer.

    Routes use this if they answer a repeated request with the current state and do not act again (D-113).
    Raises EngineError: `engine.idempotency_key_reused`.
    """
    if request is None:
        return False
    if not await _claim(work, request):
        stored = await _stored(work, request)
        _check_same(work, stored, request)
        work.audit_nothing()
        return True
    expires_at = work.deps.clock() + KEEP_FOR
    await idempotency.store_answer(
        work.tx, request.stored_key, status=200, answer=b"", sealed=False, expires_at=expires_at
    )
    return False


async def find_answer(deps: Deps, account: Account, request: IdempotentRequest | None) -> StoredAnswer | None:
    """Return the answer that is stored for the request's key, or None.

    A route calls this before it calls a third party, so that a repeated request causes no second call.

    Raises EngineError: `engine.idempotency_key_reused`.
    """
    return None if request is None else await in_transaction(deps, account, _find_answer, request)


async def _find_answer(work: Work, request: IdempotentRequest) -> StoredAnswer | None:
    stored = await idempotency.find(work.tx, request.stored_key)
    if stored is None or stored.expires_at <= work.deps.clock():
        return None
    return _answer(work, stored, request)


async def _claim(work: Work, request: IdempotentRequest) -> bool:
    """Claim the key; return False if an earlier request has claimed it.

    The body's hash is stored encrypted, because a tax document could be guessed from a plain hash.
    """
    real_now = work.deps.clock()
    return await idempotency.claim(
        work.tx,
        request.stored_key,
        route=request.route,
        body_hash=work.seal(request.body_hash(), place=idempotency.BODY_PLACE, row_id=request.stored_key),
        real_now=real_now,
        expires_at=real_now + KEEP_FOR,
    )


def _answer(work: Work, stored: StoredKey, request: IdempotentRequest) -> StoredAnswer | None:
    """Return the stored answer; None if the request has no answer yet.

    Raises EngineError: `engine.idempotency_key_reused`.
    """
    _check_same(work, stored, request)
    body = stored.answer
    if stored.status is None or body is None:
        return None
    if stored.is_sealed:
        body = work.open(body, place=idempotency.PLACE, row_id=request.stored_key)
    return StoredAnswer(stored.status, body, replayed=True)


def _check_same(work: Work, stored: StoredKey, request: IdempotentRequest) -> None:
    """Check that the stored key belongs to this request. Raises EngineError: `engine.idempotency_key_reused`."""
    if stored.route == request.route:
        body_hash = work.open(stored.body_hash, place=idempotency.BODY_PLACE, row_id=request.stored_key)
        if body_hash == request.body_hash():
            return
    raise key_reused()


def key_reused() -> EngineError:
    return EngineError(
        IDEMPOTENCY_KEY_REUSED,
        "This Idempotency-Key was used for another request; send a fresh key for a new one.",
    )


async def delete_expired(work: Work, *, limit: int) -> int:
    """Delete up to `limit` expired keys; return how many (D-14)."""
    return await idempotency.delete_expired(work.tx, real_now=work.deps.clock(), limit=limit)
