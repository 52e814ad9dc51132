"""Run a request once per Idempotency-Key; its key, effect and answer are committed together (D-14)."""

import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

import msgspec

from fatura.domain.account import Account
from fatura.domain.errors import IDEMPOTENCY_IN_PROGRESS, IDEMPOTENCY_KEY_REUSED, EngineError
from fatura.store import idempotency
from fatura.store.db import LockTimeoutError
from fatura.store.idempotency import StoredKey
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import Work, in_transaction
from fatura.views.view import View

KEEP_FOR = timedelta(days=30)
KEEP_SECRET_FOR = timedelta(hours=24)
"""How long an answer that contains a secret is kept; it is stored encrypted (D-14)."""


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """A successful answer, stored byte for byte."""

    status: int
    body: bytes
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class IdempotentRequest:
    """Two requests are the same if their keys, routes (with ids) and parsed bodies are equal."""

    key: str | None
    route: str
    body: object

    def body_hash(self) -> bytes:
        """Return a hash that is independent of the JSON's formatting."""
        return hashlib.sha256(json.dumps(self.body, sort_keys=True).encode()).digest()


@dataclass(slots=True)
class _Progress:
    """Whether the transaction has claimed the key. A lock timeout before that means that another request uses it."""

    is_claimed: bool = False


async def execute_once(
    deps: Deps,
    account: Account,
    request: IdempotentRequest,
    function: Callable[[Work], Awaitable[View]],
    *,
    status: int,
    holds_secret: bool = False,
) -> StoredAnswer:
    """Run `function` in a transaction, or return the answer that is stored for the key. Errors are not stored.

    Raises EngineError: `engine.idempotency_key_reused`; `engine.idempotency_in_progress` while another request with
    the key is running; and what `function` raises. Raises LockTimeoutError for any other lock.
    """
    if request.key is None:
        return await in_transaction(deps, account, _execute, function, status=status)
    progress = _Progress()
    try:
        return await in_transaction(
            deps,
            account,
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
        raise EngineError(
            IDEMPOTENCY_IN_PROGRESS,
            "A request with this Idempotency-Key is still in progress; retry in a moment.",
            retry_after_seconds=1,
        ) from None


async def _execute(work: Work, function: Callable[[Work], Awaitable[View]], *, status: int) -> StoredAnswer:
    return StoredAnswer(status, msgspec.json.encode(await function(work)))


async def _execute_or_replay(
    work: Work,
    request: IdempotentRequest,
    function: Callable[[Work], Awaitable[View]],
    progress: _Progress,
    *,
    status: int,
    holds_secret: bool,
) -> StoredAnswer:
    assert request.key is not None, "requests without a key are not stored"
    progress.is_claimed = False  # may be True when the transaction is retried after a deadlock
    if not await _claim(work, request, request.key):
        return await _replay(work, request, request.key)
    progress.is_claimed = True
    answer = await _execute(work, function, status=status)
    await idempotency.store_answer(
        work.tx,
        request.key,
        status=status,
        answer=_seal(work, request.key, answer.body) if holds_secret else answer.body,
        sealed=holds_secret,
        expires_at=work.deps.clock() + (KEEP_SECRET_FOR if holds_secret else KEEP_FOR),
    )
    return answer


async def is_repeat(work: Work, request: IdempotentRequest) -> bool:
    """Store the request's key without an answer; return whether the request was made before.

    For routes that answer with the current state, but whose action a repeat must skip (D-113). Returns False when
    the key was used for a different request.
    """
    key = request.key
    if key is None:
        return False
    if not await _claim(work, request, key):
        stored = await idempotency.find(work.tx, key)
        return stored is not None and _is_same(work, stored, request, key)
    expires_at = work.deps.clock() + KEEP_FOR
    await idempotency.store_answer(work.tx, key, status=200, answer=b"", sealed=False, expires_at=expires_at)
    return False


async def find_answer(deps: Deps, account: Account, request: IdempotentRequest) -> StoredAnswer | None:
    """Return the stored answer of a key, for routes that call a third party before their transaction.

    Raises EngineError: `engine.idempotency_key_reused`.
    """
    if request.key is None:
        return None
    return await in_transaction(deps, account, _find_answer, request, request.key)


async def _find_answer(work: Work, request: IdempotentRequest, key: str) -> StoredAnswer | None:
    stored = await idempotency.find(work.tx, key)
    if stored is None or stored.expires_at <= work.deps.clock():
        return None
    return _answer(work, stored, request, key)


async def _claim(work: Work, request: IdempotentRequest, key: str) -> bool:
    real_now = work.deps.clock()
    return await idempotency.claim(
        work.tx,
        key,
        route=request.route,
        body_hash=_sealed_hash(work, request, key),
        real_now=real_now,
        expires_at=real_now + KEEP_FOR,
    )


async def _replay(work: Work, request: IdempotentRequest, key: str) -> StoredAnswer:
    stored = await idempotency.find(work.tx, key)
    assert stored is not None, "a conflicting key is committed and visible"
    return _answer(work, stored, request, key)


def _answer(work: Work, stored: StoredKey, request: IdempotentRequest, key: str) -> StoredAnswer:
    if not _is_same(work, stored, request, key):
        raise EngineError(
            IDEMPOTENCY_KEY_REUSED,
            "This Idempotency-Key was used for another request; send a fresh key for a new one.",
        )
    assert stored.status is not None, "a committed key has its answer"
    assert stored.answer is not None, "a committed key has its answer"
    body = stored.answer
    if stored.is_sealed:
        body = work.deps.vault.open(
            body, place=idempotency.PLACE, account_id=work.account.account_id, row_id=key
        )
    return StoredAnswer(stored.status, body, replayed=True)


def _sealed_hash(work: Work, request: IdempotentRequest, key: str) -> bytes:
    """Return the encrypted hash of the body. A plain hash would let one guess a tax document in the body."""
    return work.deps.vault.seal(
        request.body_hash(),
        place=idempotency.BODY_PLACE,
        account_id=work.account.account_id,
        row_id=key,
    )


def _is_same(work: Work, stored: StoredKey, request: IdempotentRequest, key: str) -> bool:
    if stored.route != request.route:
        return False
    body_hash = work.deps.vault.open(
        stored.body_hash,
        place=idempotency.BODY_PLACE,
        account_id=work.account.account_id,
        row_id=key,
    )
    return body_hash == request.body_hash()


def _seal(work: Work, key: str, body: bytes) -> bytes:
    return work.deps.vault.seal(body, place=idempotency.PLACE, account_id=work.account.account_id, row_id=key)


async def delete_expired(work: Work, *, limit: int) -> int:
    """Delete up to `limit` expired keys; return how many (D-14)."""
    return await idempotency.delete_expired(work.tx, real_now=work.deps.clock(), limit=limit)
