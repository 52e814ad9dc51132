"""The key of the authentication tags in API keys and connection ids (ADR 0018)."""

import secrets

from fatura.domain.tags import KEY_BYTES, Tagger
from fatura.store.accounts import tag_keys
from fatura.store.accounts.tag_keys import NO_ACCOUNT, PLACE
from fatura.store.db import Database
from fatura.store.vault import KeyRingError, Vault
from fatura.usecases.deps import Deps

_ROW = str(NO_ACCOUNT)
_LOST = (
    "the table tag_key has lost its row, without which no API key and no URL of a gateway's webhook works: "
    "copy the row from a backup, for example with `pg_restore --data-only --table tag_key`; "
    "if you rotated the key ring after this backup, add the older key to the end of the ring"
)


async def load(db: Database, vault: Vault) -> Tagger:
    """Return a tagger with the tag key of the database. If there is no tag key and no account yet, create the key.

    Each process calls this function when it starts. So a process with a wrong key ring stops before it encrypts data.
    Raises KeyRingError if the tag key is lost, or if the key ring lacks the key that encrypts the tag key. Also raises
    DatabaseUnavailableError.
    """
    sealed = await tag_keys.find(db)
    if sealed is None:
        new = vault.seal(secrets.token_bytes(KEY_BYTES), place=PLACE, account_id=NO_ACCOUNT, row_id=_ROW)
        async with db.transaction(NO_ACCOUNT) as tx:
            await tag_keys.insert_first(tx, new)
        sealed = await tag_keys.find(db)
    if sealed is None:
        raise KeyRingError(_LOST)
    return Tagger(_open(vault, sealed))


async def ring_key(deps: Deps) -> bytes:
    """Return the id of the key ring's key that encrypts the tag key."""
    sealed = await tag_keys.find(deps.db)
    assert sealed is not None, "the process has loaded it at its start"
    return tag_keys.ring_key_of(sealed)


async def reencrypt(deps: Deps) -> int:
    """Encrypt the tag key with the first key of the key ring; return how many values changed: 0 or 1.

    The tag key itself does not change, because API keys and the URLs of gateways' webhooks contain tags made with it.
    """
    async with deps.db.transaction(NO_ACCOUNT) as tx:
        sealed = await tag_keys.lock(tx)
        if tag_keys.ring_key_of(sealed) == deps.vault.sealing_id:
            return 0
        plain = _open(deps.vault, sealed)
        await tag_keys.update(tx, deps.vault.seal(plain, place=PLACE, account_id=NO_ACCOUNT, row_id=_ROW))
        return 1


def _open(vault: Vault, sealed: bytes) -> bytes:
    return vault.open(sealed, place=PLACE, account_id=NO_ACCOUNT, row_id=_ROW)
