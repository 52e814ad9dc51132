"""SQL of the sandbox's own tables: its charges, products and queued faults (D-46).

These statements use no table of the engine, and the engine's `store` does not use these tables.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import date, datetime
from typing import Any, LiteralString, Protocol
from uuid import UUID

import msgspec

from fatura.domain.sandbox import SandboxCharge, SandboxFault, SandboxOperation, SandboxProduct
from fatura.gateways.adapters.sandbox.rules import Outcome, Rule

CHARGES_A_PAGE = 500
"""Number of charges in a page of `charges_since`."""


class Tx(Protocol):
    """A transaction of one account that passes `account_id` as `$1`; `store.db` implements it."""

    async def fetch(self, sql: LiteralString, *values: object) -> Sequence[Any]: ...

    async def fetchrow(self, sql: LiteralString, *values: object) -> Any: ...

    async def fetchval(self, sql: LiteralString, *values: object) -> Any: ...

    async def execute(self, sql: LiteralString, *values: object) -> int:
        """Return the number of affected rows."""
        ...


class Database(Protocol):
    """The methods of `store.db.Database` that the sandbox uses."""

    def transaction(self, account_id: UUID) -> AbstractAsyncContextManager[Tx]: ...


async def insert_charge(tx: Tx, charge: SandboxCharge) -> None:
    """Insert a charge; several charges may have the same reference."""
    await tx.execute(
        """
        INSERT INTO sandbox_charge (account_id, charge_id, connection_id, invoice_id, attempt, amount_cents,
            payment_method, installments, due_date, status, paid_at, created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
        """,
        charge.charge_id,
        charge.connection_id,
        charge.invoice_id,
        charge.attempt,
        charge.amount_cents,
        charge.method,
        charge.installments,
        charge.due_date,
        charge.status,
        charge.paid_at,
        charge.created_at,
    )


async def find_charge(tx: Tx, connection_id: UUID, charge_id: str) -> SandboxCharge | None:
    row = await tx.fetchrow(
        """
        SELECT c.charge_id, c.connection_id, c.invoice_id, c.attempt, c.amount_cents, c.payment_method AS method,
            c.installments, c.due_date, c.status, c.paid_at, c.created_at
        FROM sandbox_charge c WHERE c.account_id = $1 AND c.connection_id = $2 AND c.charge_id = $3
        """,
        connection_id,
        charge_id,
    )
    return None if row is None else _charge(row)


async def charges(tx: Tx, connection_id: UUID, invoice_id: UUID | None, *, limit: int) -> list[SandboxCharge]:
    """Return the newest charges of a connection, or of one of its invoices, newest first."""
    rows = await tx.fetch(
        """
        SELECT c.charge_id, c.connection_id, c.invoice_id, c.attempt, c.amount_cents, c.payment_method AS method,
            c.installments, c.due_date, c.status, c.paid_at, c.created_at
        FROM sandbox_charge c
        WHERE c.account_id = $1 AND c.connection_id = $2 AND ($3::uuid IS NULL OR c.invoice_id = $3)
        ORDER BY c.charge_id DESC LIMIT $4
        """,
        connection_id,
        invoice_id,
        limit,
    )
    return [_charge(row) for row in rows]


async def charges_since(tx: Tx, connection_id: UUID, since: datetime, *, after: str) -> list[SandboxCharge]:
    """Return a page of the charges created at or after `since`, oldest first; it begins after the id `after`."""
    rows = await tx.fetch(
        """
        SELECT c.charge_id, c.connection_id, c.invoice_id, c.attempt, c.amount_cents, c.payment_method AS method,
            c.installments, c.due_date, c.status, c.paid_at, c.created_at
        FROM sandbox_charge c
        WHERE c.account_id = $1 AND c.connection_id = $2 AND c.created_at >= $3 AND c.charge_id > $4
        ORDER BY c.charge_id LIMIT $5
        """,
        connection_id,
        since,
        after,
        CHARGES_A_PAGE,
    )
    return [_charge(row) for row in rows]


async def settle_charges(
    tx: Tx, connection_id: UUID, outcomes: Mapping[str, Outcome]
) -> dict[str, SandboxCharge]:
    """Store the outcomes of those charges that are still open, and return these charges."""
    rows = await tx.fetch(
        """
        UPDATE sandbox_charge c SET status = o.status, paid_at = o.paid_at
        FROM unnest($3::text[], $4::text[], $5::timestamptz[]) AS o (charge_id, status, paid_at)
        WHERE c.account_id = $1 AND c.connection_id = $2 AND c.charge_id = o.charge_id AND c.status = 'open'
        RETURNING c.charge_id, c.connection_id, c.invoice_id, c.attempt, c.amount_cents, c.payment_method AS method,
            c.installments, c.due_date, c.status, c.paid_at, c.created_at
        """,
        connection_id,
        list(outcomes),
        [outcome.status for outcome in outcomes.values()],
        [outcome.paid_at for outcome in outcomes.values()],
    )
    return {row["charge_id"]: _charge(row) for row in rows}


async def move_charge(
    tx: Tx, connection_id: UUID, charge_id: str, *, rule: Rule, paid_at: datetime | None
) -> bool:
    """Change a charge's status if `rule` allows it; return whether it changed. An existing `paid_at` is kept."""
    touched = await tx.execute(
        """
        UPDATE sandbox_charge c SET status = $5, paid_at = coalesce(c.paid_at, $6)
        WHERE c.account_id = $1 AND c.connection_id = $2 AND c.charge_id = $3 AND c.status = ANY ($4::text[])
        """,
        connection_id,
        charge_id,
        rule.sources,
        rule.target,
        paid_at,
    )
    return touched == 1


async def upsert_product(tx: Tx, product: SandboxProduct) -> None:
    await tx.execute(
        """
        INSERT INTO sandbox_product (account_id, connection_id, product_id, name, description, created_at)
        VALUES ($1, $2, $3, $4, $5, $6)
        ON CONFLICT (account_id, connection_id, product_id)
        DO UPDATE SET name = EXCLUDED.name, description = EXCLUDED.description
        """,
        product.connection_id,
        product.product_id,
        product.name,
        product.description,
        product.created_at,
    )


async def products(tx: Tx, connection_id: UUID) -> list[SandboxProduct]:
    """Return the connection's catalog, newest first."""
    rows = await tx.fetch(
        """
        SELECT p.connection_id, p.product_id, p.name, p.description, p.created_at
        FROM sandbox_product p WHERE p.account_id = $1 AND p.connection_id = $2 ORDER BY p.product_id DESC
        """,
        connection_id,
    )
    return [SandboxProduct(**row) for row in rows]


async def insert_fault(
    tx: Tx,
    connection_id: UUID,
    fault_id: UUID,
    *,
    operation: SandboxOperation,
    fault: SandboxFault,
    times: int,
) -> None:
    """Queue a fault after the existing ones."""
    await tx.execute(
        """
        INSERT INTO sandbox_fault (account_id, sandbox_fault_id, connection_id, operation, fault, times_left)
        VALUES ($1, $2, $3, $4, $5, $6)
        """,
        fault_id,
        connection_id,
        operation,
        fault,
        times,
    )


async def take_fault(tx: Tx, connection_id: UUID, operation: SandboxOperation) -> SandboxFault | None:
    """Return the operation's oldest fault and count one of its `times` as used. Concurrent callers use one each."""
    fault = await tx.fetchval(
        """
        WITH oldest AS MATERIALIZED (
            SELECT w.sandbox_fault_id FROM sandbox_fault w
            WHERE w.account_id = $1 AND w.connection_id = $2 AND w.operation = $3 AND w.times_left > 0
            ORDER BY w.sandbox_fault_id LIMIT 1 FOR UPDATE
        )
        UPDATE sandbox_fault f SET times_left = f.times_left - 1 FROM oldest
        WHERE f.account_id = $1 AND f.sandbox_fault_id = oldest.sandbox_fault_id
        RETURNING f.fault
        """,
        connection_id,
        operation,
    )
    return None if fault is None else SandboxFault(fault)


def _charge(row: Any) -> SandboxCharge:
    return msgspec.convert(dict(row), SandboxCharge, builtin_types=(UUID, date, datetime))
