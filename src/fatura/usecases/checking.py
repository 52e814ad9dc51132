"""Check every promise in every account, read-only, on the tables as they are (`fatura check`)."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from fatura.store import invariants
from fatura.store.invariants import INVARIANTS, Invariant
from fatura.usecases.deps import Deps

OFFENDERS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """A promise that an account's rows break, with the ids that break it (at most OFFENDERS_SHOWN)."""

    account_id: UUID
    invariant: Invariant
    offenders: Sequence[UUID]


async def all_accounts(deps: Deps) -> Sequence[UUID]:
    """Return all accounts. Raises DatabaseUnavailableError."""
    async with deps.db.discovery() as look:
        return await invariants.discover_accounts(look)


async def findings(deps: Deps, account_id: UUID) -> AsyncIterator[Finding]:
    """Yield what is broken in an account, each promise in a transaction of its own."""
    for invariant in INVARIANTS:
        async with deps.db.transaction(account_id) as tx:
            offenders = await invariants.offenders(tx, invariant, limit=OFFENDERS_SHOWN)
        if offenders:
            yield Finding(account_id, invariant, offenders)
