"""Check every promise in every account, read-only, on the tables as they are (`fatura check`)."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from prometheus_client import CollectorRegistry

from fatura.observability import gauge
from fatura.store import invariants
from fatura.store.invariants import INVARIANTS, Invariant
from fatura.usecases.deps import Deps

OFFENDERS_SHOWN = 20

CHECKED = CollectorRegistry()
_offenders = gauge(
    "fatura_invariant_offenders",
    f"Rows that break an invariant, counted up to {OFFENDERS_SHOWN} an account; written by `fatura check --textfile`.",
    "invariant",
    registry=CHECKED,
)
_checked_at = gauge(
    "fatura_check_timestamp_seconds",
    "When `fatura check --textfile` ended last, in Unix time: alert when it grows old.",
    registry=CHECKED,
)


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
            offenders = await invariants.offenders(
                tx,
                invariant,
                limit=OFFENDERS_SHOWN,
                real_now=deps.clock(),
                key_ids=deps.vault.key_ids,
            )
        if offenders:
            yield Finding(account_id, invariant, offenders)


def measured(found: Sequence[Finding]) -> CollectorRegistry:
    """Return metrics of a whole check: how many offenders each promise has, and when it ended (D-128)."""
    for invariant in INVARIANTS:
        offenders = [len(each.offenders) for each in found if each.invariant is invariant]
        _offenders.labels(invariant.name).set(sum(offenders))
    _checked_at.set_to_current_time()
    return CHECKED
