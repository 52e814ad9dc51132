"""Re-encrypt every secret with the key ring's first key while the engine runs, so that older keys can be removed."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from uuid import UUID

from fatura.domain.audit import Actor, Origin
from fatura.domain.audit_actions import ACCOUNT_REENCRYPT
from fatura.observability import log
from fatura.store import sealed_columns
from fatura.store.sealed_columns import ReencryptedValue, RowId, SealedColumn
from fatura.store.vault import KeyRingError
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import Work, in_transaction, load_account

BATCH = 500
"""Maximum number of values that one transaction re-encrypts. Requests that lock these rows wait for its commit."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The result of one transaction. `unreadable` counts values that could not be decrypted and were not changed.

    `last` is the id of the final row that was read, or None if no row was left.
    """

    reencrypted: int
    unreadable: int
    last: RowId | None


async def usage(deps: Deps, account_id: UUID) -> Mapping[bytes, int]:
    """Return how many of an account's values are encrypted with each key, by key id."""
    async with deps.db.transaction(account_id, snapshot=True) as tx:
        return await sealed_columns.usage(tx)


async def reencrypt(
    deps: Deps, account_id: UUID, *, asked_by: Actor, limit: int = BATCH
) -> AsyncGenerator[Batch]:
    """Re-encrypt an account's values in batches, and yield what each batch did.

    After an interruption, call this again: it leaves out the values that are already encrypted with the first key.
    Raises DATABASE_FAILURES.
    """
    account = await load_account(deps, account_id)
    owed = Origin(asked_by)  # the first batch that changes a value adds the audit entry
    for column in sealed_columns.COLUMNS:
        after: RowId | None = column.first
        while after is not None:
            batch = await in_transaction(
                deps, account, _reencrypt, column, after=after, limit=limit, owed=owed
            )
            owed = None if batch.reencrypted else owed
            after = batch.last
            yield batch


async def _reencrypt(
    work: Work, column: SealedColumn, *, after: RowId, limit: int, owed: Origin | None
) -> Batch:
    vault = work.deps.vault
    page = await sealed_columns.page(work.tx, column, after=after, sealing_id=vault.sealing_id, limit=limit)
    reencrypted: list[ReencryptedValue] = []
    for row_id, value in page:
        try:
            reencrypted.append(_reencrypt_value(work, column, row_id=row_id, value=value))
        except KeyRingError as error:
            log.error("key_ring.unreadable", account_id=str(work.account.account_id), error=error)
    if reencrypted:
        await sealed_columns.rewrite(work.tx, column, reencrypted)
        if owed is not None:
            state = {"keyId": vault.sealing_id.hex()}
            account_id = work.account.account_id
            work.audit_for(owed, ACCOUNT_REENCRYPT, resource_id=account_id, before={}, after=state)
    return Batch(len(reencrypted), len(page) - len(reencrypted), page[-1][0] if page else None)


def _reencrypt_value(work: Work, column: SealedColumn, *, row_id: RowId, value: bytes) -> ReencryptedValue:
    plain = work.open(value, place=column.place, row_id=row_id)
    sealed = work.seal(plain, place=column.place, row_id=row_id)
    keyed_hash = None
    if column.keyed_hash is not None:
        keyed_hash = column.keyed_hash(work.deps.vault, work.account.account_id, plain)
    return ReencryptedValue(row_id, sealed, keyed_hash)
