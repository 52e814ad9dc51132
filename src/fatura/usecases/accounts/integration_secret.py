"""Create, rotate and decrypt the integration secret, which signs webhooks and price calls (spec 5.5 to 5.7, D-40)."""

import base64
import secrets
from datetime import timedelta

from fatura.domain.credentials import SECRET_BYTES
from fatura.observability import log
from fatura.signature import PREFIX
from fatura.store.accounts import secrets as stored_secrets
from fatura.store.vault import KeyRingError
from fatura.usecases.transaction import Work
from fatura.views.integration import NewSecretView
from fatura.views.view import instant

PREVIOUS_VALID_FOR = timedelta(hours=24)
"""For this time after a rotation, on the account's clock, calls are also signed with the old secret (spec 5.7)."""
MAX_SIGNATURES = 8
"""Maximum number of signatures on one call, so that frequent rotations do not make the header too long."""


async def signing_secrets(work: Work) -> tuple[str, ...]:
    """Return the current secret, followed by the previous secrets that are still valid, newest first (D-40).

    If a previous secret cannot be decrypted, an error is logged and the secret is skipped. Raises KeyRingError if the
    current secret cannot be decrypted. A merchant can replace such a secret by a rotation.
    """
    opened: list[str] = []
    for secret_id, sealed in await stored_secrets.find_valid(work.tx, now=work.now, limit=MAX_SIGNATURES):
        try:
            opened.append(work.open(sealed, place=stored_secrets.PLACE, row_id=secret_id).decode())
        except KeyRingError as error:
            if not opened:
                raise
            log.error("secret.unreadable", error=error)
    return tuple(opened)


async def rotate(work: Work, *, revoke_previous: bool) -> NewSecretView:
    """Create a new secret; for 24 hours, calls are signed with the previous one too (D-40, D-42).

    With `revoke_previous`, no call is signed with any previous secret from now on (D-207).
    """
    await stored_secrets.lock(work.tx)
    await work.refresh()
    valid_until = work.now if revoke_previous else work.now + PREVIOUS_VALID_FOR
    if revoke_previous:
        await stored_secrets.revoke_all(work.tx, now=work.now)
    else:
        await stored_secrets.retire(work.tx, valid_until=valid_until)
    secret = await create_secret(work)
    await stored_secrets.delete_unused(work.tx, now=work.now, kept=MAX_SIGNATURES)
    view = NewSecretView(secret=secret, previous_valid_until=instant(valid_until))
    work.audit(work.account.account_id, before={}, after=view)
    return view


async def create_secret(work: Work) -> str:
    """Create the account's current secret, store it encrypted, and return it (D-42)."""
    secret = PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()
    secret_id = work.new_id()
    sealed = work.seal(secret.encode(), place=stored_secrets.PLACE, row_id=secret_id)
    await stored_secrets.insert(work.tx, secret_id, sealed=sealed, created_at=work.now)
    return secret
