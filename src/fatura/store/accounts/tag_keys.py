"""SQL of `tag_key`, which has one row for all accounts: the key of authentication tags, encrypted (ADR 0018)."""

from uuid import UUID

from fatura.store.db import Database, Tx
from fatura.store.vault import KEY_ID_BYTES

PLACE = "tag_key.sealed"
NO_ACCOUNT = UUID(int=0)
"""The id of the only row, and the account id of all transactions that read or write this row."""


async def find(db: Database) -> bytes | None:
    """Return the encrypted key, or None if no key is stored. Raises DatabaseUnavailableError."""
    async with db.transaction(NO_ACCOUNT, quick=True) as tx:
        return await tx.fetchval("SELECT t.sealed FROM tag_key t WHERE t.id = $1")


async def is_needed(db: Database) -> bool:
    """Return whether the key is needed: a key is stored, or an account was ever opened.

    Raises DatabaseUnavailableError.
    """
    async with db.transaction(NO_ACCOUNT, quick=True) as tx:
        return await tx.fetchval(
            "SELECT EXISTS (SELECT FROM tag_key t WHERE t.id = $1) OR EXISTS (SELECT FROM opened_account)"
        )


async def insert_first(tx: Tx, sealed: bytes) -> None:
    """Insert the encrypted key, unless a key is stored or an account was ever opened."""
    await tx.execute(
        """
        INSERT INTO tag_key (id, sealed)
        SELECT $1, $2 WHERE NOT EXISTS (SELECT FROM opened_account) ON CONFLICT DO NOTHING
        """,
        sealed,
    )


async def lock(tx: Tx) -> bytes:
    return await tx.fetchval("SELECT t.sealed FROM tag_key t WHERE t.id = $1 FOR NO KEY UPDATE")


async def update(tx: Tx, sealed: bytes) -> None:
    await tx.execute("UPDATE tag_key t SET sealed = $2 WHERE t.id = $1", sealed)


def ring_key_of(sealed: bytes) -> bytes:
    """Return the id of the key-ring key that encrypted the value."""
    return sealed[:KEY_ID_BYTES]
