"""Check every invariant in every account, without writing (`fatura check`)."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from prometheus_client import CollectorRegistry

from fatura.observability import gauge
from fatura.store import invariants
from fatura.store.accounts import accounts
from fatura.store.invariants import INVARIANTS, Invariant
from fatura.usecases.deps import Deps

MAX_OFFENDERS = 20
AT_ONCE = 2
"""Number of invariants that are checked at the same time. Each uses one processor of the database's host."""
ACCOUNTS_STORED = Invariant(
    "accounts_stored", "every account that was opened is stored; restore a missing one from a backup", ""
)
"""`missing_accounts` checks this invariant over all accounts, so the invariant has no SQL for one account."""

CHECKED = CollectorRegistry()
_offenders = gauge(
    "fatura_invariant_offenders",
    f"Rows that violate an invariant, at most {MAX_OFFENDERS} per account; written by `fatura check --textfile`.",
    "invariant",
    registry=CHECKED,
)
_checked_at = gauge(
    "fatura_check_timestamp_seconds",
    "Unix time of the last finished `fatura check --textfile`; alert when it is old.",
    registry=CHECKED,
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A violated invariant, with the ids of up to MAX_OFFENDERS rows that violate it."""

    account_id: UUID
    invariant: Invariant
    offenders: Sequence[UUID]


async def all_accounts(deps: Deps) -> Sequence[UUID]:
    """Return the ids of all accounts. Raises DatabaseUnavailableError."""
    async with deps.db.discovery() as tx:
        return await invariants.discover_accounts(tx)


async def missing_accounts(deps: Deps, account_ids: Sequence[UUID]) -> Sequence[Finding]:
    """Return a finding for each account that is in the table `opened_account`, but not in `account_ids`.

    `account_ids` must be the ids of all stored accounts.
    """
    async with deps.db.discovery() as tx:
        missing = set(await accounts.discover_opened(tx)).difference(account_ids)
    return [Finding(each, ACCOUNTS_STORED, [each]) for each in sorted(missing)]


async def findings(
    deps: Deps, account_id: UUID, *, progress: Callable[[], None] = lambda: None
) -> Sequence[Finding]:
    """Return the violated invariants of an account. `progress` is called after each invariant.

    AT_ONCE invariants are checked at a time, each in its own transaction. Raises DatabaseUnavailableError.
    """
    places = asyncio.Semaphore(AT_ONCE)
    checks = [asyncio.create_task(_check(deps, account_id, each, places, progress)) for each in INVARIANTS]
    try:
        return [finding for finding in await asyncio.gather(*checks) if finding.offenders]
    finally:
        for each in checks:
            each.cancel()
        await asyncio.gather(*checks, return_exceptions=True)


async def _check(
    deps: Deps,
    account_id: UUID,
    invariant: Invariant,
    places: asyncio.Semaphore,
    progress: Callable[[], None],
) -> Finding:
    async with places, deps.db.inspection(account_id) as tx:
        offenders = await invariants.offenders(
            tx, invariant, limit=MAX_OFFENDERS, real_now=deps.clock(), key_ids=deps.vault.key_ids
        )
    progress()
    return Finding(account_id, invariant, offenders)


def set_metrics(found: Sequence[Finding]) -> CollectorRegistry:
    """Set the metrics of a finished check and return their registry (D-128)."""
    for invariant in (*INVARIANTS, ACCOUNTS_STORED):
        offenders = [len(each.offenders) for each in found if each.invariant is invariant]
        _offenders.labels(invariant.name).set(sum(offenders))
    _checked_at.set_to_current_time()
    return CHECKED
