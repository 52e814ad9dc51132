"""What must hold in the tables at any moment, as named SQL that returns the ids which break it (`fatura check`)."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from fatura.store.db import Discovery, Tx
from fatura.store.invariants.charges import CHARGES
from fatura.store.invariants.cycles import CYCLES
from fatura.store.invariants.invariant import Asks, Invariant
from fatura.store.invariants.pushes import PUSHES
from fatura.store.invariants.stream import STREAM
from fatura.store.invariants.values import VALUES
from fatura.store.invariants.walls import WALLS

__all__ = ["INVARIANTS", "Invariant", "discover_accounts", "offenders"]

INVARIANTS: tuple[Invariant, ...] = (*CYCLES, *VALUES, *CHARGES, *STREAM, *PUSHES, *WALLS)
"""All promises, in the order in which they are checked."""


async def offenders(
    tx: Tx, invariant: Invariant, *, limit: int, real_now: datetime, key_ids: Sequence[bytes]
) -> Sequence[UUID]:
    """Return the ids that break a promise in the transaction's account; `key_ids` name the keys of the ring."""
    given = {Asks.NOTHING: (), Asks.REAL_NOW: (real_now,), Asks.KEY_IDS: (key_ids,)}[invariant.asks]
    return [row["offender"] for row in await tx.fetch(invariant.sql, limit, *given)]


async def discover_accounts(discovery: Discovery) -> Sequence[UUID]:
    """Return all accounts."""
    return [
        row["account_id"] for row in await discovery.fetch("SELECT a.account_id FROM account a ORDER BY 1")
    ]
