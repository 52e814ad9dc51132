"""Seal every secret anew with the ring's first key, while everything runs, so that older keys can be dropped."""

from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from uuid import UUID

from fatura.observability import log
from fatura.store import sealed_columns
from fatura.store.sealed_columns import RowId, SealedColumn
from fatura.store.vault import KeyRingError
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import Work, in_snapshot, in_transaction, load_account

BATCH = 500
"""Values sealed anew in one transaction: a request that wants one of them waits for no more than that."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one transaction did: values sealed anew, and values that do not open and were left as they are."""

    resealed: int
    unreadable: int
    last: RowId | None


async def usage(deps: Deps, account_id: UUID) -> Counter[bytes]:
    """Return how many secrets of an account each key sealed, by the key's id, in one moment."""

    async def count(work: Work) -> Counter[bytes]:
        found = Counter[bytes]()
        for column in sealed_columns.COLUMNS:
            found.update(await sealed_columns.usage(work.tx, column))
        return found

    return await in_snapshot(deps, await load_account(deps, account_id), count)


async def rotate(deps: Deps, account_id: UUID, *, limit: int = BATCH) -> AsyncGenerator[Batch]:
    """Seal an account's secrets anew, batch by batch; who is interrupted begins again, and finds less to do.

    Raises DatabaseUnavailableError, LockTimeoutError.
    """
    account = await load_account(deps, account_id)
    for column in sealed_columns.COLUMNS:
        after: RowId | None = column.first
        while after is not None:

            async def effect(work: Work, column: SealedColumn = column, after: RowId = after) -> Batch:
                return await _reseal(work, column, after=after, limit=limit)

            batch = await in_transaction(deps, account, effect)
            after = batch.last
            yield batch


async def _reseal(work: Work, column: SealedColumn, *, after: RowId, limit: int) -> Batch:
    vault = work.deps.vault
    found = await sealed_columns.page(work.tx, column, after=after, sealing_id=vault.sealing_id, limit=limit)
    anew: list[tuple[RowId, bytes]] = []
    for row_id, value in found:
        try:
            anew.append((row_id, _anew(work, column, row_id=row_id, value=value)))
        except KeyRingError as error:
            log.error("key_ring.unreadable", account_id=str(work.account.account_id), error=str(error))
    if anew:
        await sealed_columns.rewrite(work.tx, column, anew)
    return Batch(len(anew), len(found) - len(anew), found[-1][0] if found else None)


def _anew(work: Work, column: SealedColumn, *, row_id: RowId, value: bytes) -> bytes:
    vault, account_id = work.deps.vault, work.account.account_id
    plain = vault.open(value, place=column.place, account_id=account_id, row_id=str(row_id))
    return vault.seal(plain, place=column.place, account_id=account_id, row_id=str(row_id))
