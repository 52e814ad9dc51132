"""The invariants that `fatura check` verifies. The SQL of an invariant returns the ids of rows that violate it."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from fatura.store.db import Discovery, Tx
from fatura.store.invariants.audit import AUDIT
from fatura.store.invariants.charges import CHARGES
from fatura.store.invariants.cycles import CYCLES
from fatura.store.invariants.deliveries import DELIVERIES
from fatura.store.invariants.erasures import ERASURES
from fatura.store.invariants.events import EVENTS
from fatura.store.invariants.invariant import Invariant
from fatura.store.invariants.payments import PAYMENTS
from fatura.store.invariants.tenant_isolation import TENANT_ISOLATION
from fatura.store.invariants.terms import TERMS
from fatura.store.invariants.values import VALUES

__all__ = ["INVARIANTS", "Invariant", "discover_accounts", "offenders"]

INVARIANTS: tuple[Invariant, ...] = (
    *EVENTS,
    *CYCLES,
    *TERMS,
    *VALUES,
    *CHARGES,
    *PAYMENTS,
    *DELIVERIES,
    *AUDIT,
    *ERASURES,
    *TENANT_ISOLATION,
)
"""All invariants, in the order in which `fatura check` starts them.

The slowest invariants, which read all events, come first. The other invariants are checked while the slowest ones still
run (`checks.AT_ONCE`).
"""


async def offenders(
    tx: Tx, invariant: Invariant, *, limit: int, real_now: datetime, key_ids: Sequence[bytes]
) -> Sequence[UUID]:
    """Return ids of rows that violate an invariant in the account; `key_ids` are the ids of the key ring's keys.

    If the invariant's statement had the LIMIT itself, PostgreSQL would expect to find `limit` rows soon, and would
    choose nested loops. But usually, no row violates the invariant, and a nested loop over a million invoices takes
    long. With AS MATERIALIZED, PostgreSQL plans to read all rows, but still stops after `limit` violations.
    """
    statement = f"WITH offending AS MATERIALIZED ({invariant.sql}) TABLE offending LIMIT $2"
    values = {None: (), "real_now": (real_now,), "key_ids": (key_ids,)}[invariant.needs]
    return [row["offender"] for row in await tx.fetch(statement, limit, *values)]


async def discover_accounts(discovery: Discovery) -> Sequence[UUID]:
    return [
        row["account_id"] for row in await discovery.fetch("SELECT a.account_id FROM account a ORDER BY 1")
    ]
