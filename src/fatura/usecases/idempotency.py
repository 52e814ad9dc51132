"""One effect per Idempotency-Key: key, effect and stored answer are one transaction (D-14)."""

import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

import msgspec

from fatura.domain.account import Account
from fatura.domain.errors import IDEMPOTENCY_IN_PROGRESS, IDEMPOTENCY_KEY_REUSED, EngineError
from fatura.domain.shapes import Shape
from fatura.store import idempotency
from fatura.store.db import LockTimeoutError
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import Work, in_transaction

KEPT_FOR = timedelta(days=30)
SECRET_KEPT_FOR = timedelta(hours=24)
"""How long an answer that carries a secret is kept, sealed (D-14)."""


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """A success as the client gets it, byte for byte, the first time and every time after."""

    status: int
    body: bytes
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class IdempotentRequest:
    """What makes a repeat the same request: the key, the route with its ids, and the body as parsed JSON."""

    key: str | None
    route: str
    body: object

    def body_hash(self) -> bytes:
        """Return the hash that equal JSON values share, however they were written."""
        return hashlib.sha256(json.dumps(self.body, sort_keys=True).encode()).digest()


async def execute_once(
    deps: Deps,
    account: Account,
    request: IdempotentRequest,
    effect: Callable[[Work], Awaitable[Shape]],
    *,
    status: int,
    holds_secret: bool = False,
) -> StoredAnswer:
    """Run an effect, or replay the answer that its key already has; only successes are kept.

    Raises EngineError: `engine.idempotency_key_reused`, `engine.idempotency_in_progress` when a parallel request with
    the key does not end, and what the effect raises. Raises LockTimeoutError when anything else was waited for.
    """
    is_ours = False

    async def run(work: Work) -> StoredAnswer:
        nonlocal is_ours
        is_ours = False
        if request.key is None:
            return StoredAnswer(status, msgspec.json.encode(await effect(work)))
        if not await _claim(work, request, request.key):
            return await _replay(work, request, request.key)
        is_ours = True
        body = msgspec.json.encode(await effect(work))
        await idempotency.answer(
            work.tx,
            request.key,
            status=status,
            answer=_seal(work, request.key, body) if holds_secret else body,
            sealed=holds_secret,
            expires_at=deps.clock() + (SECRET_KEPT_FOR if holds_secret else KEPT_FOR),
        )
        return StoredAnswer(status, body)

    try:
        return await in_transaction(deps, account, run)
    except LockTimeoutError:
        if request.key is None or is_ours:
            raise
        raise EngineError(
            IDEMPOTENCY_IN_PROGRESS,
            "A request with this Idempotency-Key is still running; ask again.",
            retry_after_seconds=1,
        ) from None


async def is_repeat(work: Work, request: IdempotentRequest) -> bool:
    """Say whether a request came before, with its key, and remember it; no answer is kept.

    For what a repeat must not do again, though its answer is what the world is like by then (D-113). A key that stands
    for another request is none of ours.
    """
    key = request.key
    if key is None:
        return False
    if not await _claim(work, request, key):
        found = await idempotency.find(work.tx, key)
        return found is not None and _is_same(work, found, request, key)
    expires_at = work.deps.clock() + KEPT_FOR
    await idempotency.answer(work.tx, key, status=200, answer=b"", sealed=False, expires_at=expires_at)
    return False


async def find_answer(deps: Deps, account: Account, request: IdempotentRequest) -> StoredAnswer | None:
    """Return the answer that a key already has, for routes that ask a third party before their transaction.

    Raises EngineError: `engine.idempotency_key_reused`.
    """

    async def run(work: Work) -> StoredAnswer | None:
        assert request.key is not None, "asked with a key only"
        found = await idempotency.find(work.tx, request.key)
        if found is None or found.expires_at <= deps.clock():
            return None
        return await _replay(work, request, request.key)

    return None if request.key is None else await in_transaction(deps, account, run)


async def _claim(work: Work, request: IdempotentRequest, key: str) -> bool:
    real_now = work.deps.clock()
    return await idempotency.claim(
        work.tx,
        key,
        route=request.route,
        body_hash=_sealed_hash(work, request, key),
        real_now=real_now,
        expires_at=real_now + KEPT_FOR,
    )


async def _replay(work: Work, request: IdempotentRequest, key: str) -> StoredAnswer:
    found = await idempotency.find(work.tx, key)
    assert found is not None, "a conflicting key is committed and visible"
    if not _is_same(work, found, request, key):
        raise EngineError(
            IDEMPOTENCY_KEY_REUSED,
            "This Idempotency-Key was used for another request; send a fresh key for a new one.",
        )
    assert found.status is not None, "a committed key has its answer"
    assert found.answer is not None, "a committed key has its answer"
    body = found.answer
    if found.is_sealed:
        body = work.deps.vault.open(
            body, place=idempotency.PLACE, account_id=work.account.account_id, row_id=key
        )
    return StoredAnswer(found.status, body, replayed=True)


def _sealed_hash(work: Work, request: IdempotentRequest, key: str) -> bytes:
    """Return by what the body is known again: it may hold a tax document, which a hash in the clear would give away."""
    return work.deps.vault.seal(
        request.body_hash(),
        place=idempotency.BODY_PLACE,
        account_id=work.account.account_id,
        row_id=key,
    )


def _is_same(work: Work, found: idempotency.Claim, request: IdempotentRequest, key: str) -> bool:
    if found.route != request.route:
        return False
    known = work.deps.vault.open(
        found.body_hash,
        place=idempotency.BODY_PLACE,
        account_id=work.account.account_id,
        row_id=key,
    )
    return known == request.body_hash()


def _seal(work: Work, key: str, body: bytes) -> bytes:
    return work.deps.vault.seal(body, place=idempotency.PLACE, account_id=work.account.account_id, row_id=key)


async def forget_expired(work: Work, *, limit: int) -> int:
    """Delete keys past their time; return how many (D-14)."""
    return await idempotency.forget_expired(work.tx, real_now=work.deps.clock(), limit=limit)
